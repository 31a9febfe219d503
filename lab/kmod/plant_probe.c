// SPDX-License-Identifier: GPL-2.0
/* plant: a stall inside any function of the kernel, where the next call of it on the CPU meets it. */
#include <linux/atomic.h>
#include <linux/delay.h>
#include <linux/kprobes.h>
#include <linux/smp.h>

#include "plant.h"

/* So long is waited for a call of the function. */
#define WAIT_MS_MAX 2000

static const struct plant_request *probed_request;
static atomic_t is_armed = ATOMIC_INIT(0);
static atomic_t is_over = ATOMIC_INIT(0);

static noinline void plant_irq_off_in_stall(void)
{
	unsigned long flags;
	u64 begin, end;

	local_irq_save(flags);
	begin = plant_now();
	plant_spin_until(begin + probed_request->length_ns);
	end = plant_now();
	local_irq_restore(flags);
	plant_log(probed_request, begin, end, 1);
}
NOKPROBE_SYMBOL(plant_irq_off_in_stall);

static int on_call(struct kprobe *probe, struct pt_regs *registers)
{
	if (raw_smp_processor_id() == probed_request->cpu && atomic_cmpxchg(&is_armed, 1, 0) == 1) {
		plant_irq_off_in_stall();
		atomic_set(&is_over, 1);
	}
	return 0;
}
NOKPROBE_SYMBOL(on_call);

static int irq_off_in(const struct plant_request *request)
{
	struct kprobe probe = { .symbol_name = request->in, .pre_handler = on_call };
	unsigned int waited;
	int error;

	if (!request->in)
		return -EINVAL;
	probed_request = request;
	atomic_set(&is_over, 0);
	atomic_set(&is_armed, 1);
	error = register_kprobe(&probe);
	if (error)
		return error;
	for (waited = 0; waited < WAIT_MS_MAX && !atomic_read(&is_over); waited++)
		usleep_range(1000, 1100);
	atomic_set(&is_armed, 0);
	/* Waits for those who are inside the handler. */
	unregister_kprobe(&probe);
	return atomic_read(&is_over) ? 0 : -ETIMEDOUT;
}

const struct plant_cause plant_probe_causes[] = {
	{ .name = "irq-off-in", .function = "plant_irq_off_in_stall", .stall = irq_off_in },
	{ }
};
