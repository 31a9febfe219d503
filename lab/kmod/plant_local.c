// SPDX-License-Identifier: GPL-2.0
/* plant: what a CPU does to itself: interrupts, softirqs, NMIs, and switching them or preemption off. */
#include <linux/completion.h>
#include <linux/hrtimer.h>
#include <linux/interrupt.h>
#include <linux/irq.h>
#include <linux/irqdesc.h>
#include <linux/preempt.h>
#include <linux/smp.h>
#ifdef CONFIG_X86
#include <asm/apic.h>
#include <asm/nmi.h>
#endif

#include "plant.h"

/* Interrupts of the storm come this often, and the thread takes this long for each. */
#define STORM_PERIOD_NS (400 * NSEC_PER_USEC)
#define STORM_WORK_NS (300 * NSEC_PER_USEC)

/* The request that interrupt handlers work on. There is one at a time. */
static const struct plant_request *current_request;
static DECLARE_COMPLETION(handled);

static noinline int plant_irq_off_stall(const struct plant_request *request)
{
	unsigned long flags;
	u64 begin, end;

	local_irq_save(flags);
	begin = plant_now();
	plant_spin_until(begin + request->length_ns);
	end = plant_now();
	local_irq_restore(flags);
	plant_log(request, begin, end, 1);
	return 0;
}

static noinline int plant_preempt_off_stall(const struct plant_request *request)
{
	u64 begin, end;

	preempt_disable();
	begin = plant_now();
	plant_spin_until(begin + request->length_ns);
	end = plant_now();
	preempt_enable();
	plant_log(request, begin, end, 1);
	return 0;
}

/* Spins for the current request and says that it is done. */
static __always_inline void stall_and_complete(void)
{
	u64 begin = plant_now(), end;

	plant_spin_until(begin + current_request->length_ns);
	end = plant_now();
	plant_log(current_request, begin, end, 1);
	complete(&handled);
}

static noinline enum hrtimer_restart plant_hard_irq_stall(struct hrtimer *timer)
{
	stall_and_complete();
	return HRTIMER_NORESTART;
}

static noinline void plant_softirq_stall(struct tasklet_struct *tasklet)
{
	stall_and_complete();
}

static DECLARE_TASKLET(stalling_tasklet, plant_softirq_stall);

static enum hrtimer_restart schedule_tasklet(struct hrtimer *timer)
{
	tasklet_schedule(&stalling_tasklet);
	return HRTIMER_NORESTART;
}

/* Lets a function run in the hard timer interrupt of this CPU and waits until the stall is over. */
static int in_timer_interrupt(const struct plant_request *request,
			      enum hrtimer_restart (*function)(struct hrtimer *))
{
	struct hrtimer timer;

	current_request = request;
	reinit_completion(&handled);
	plant_timer_init(&timer, function, HRTIMER_MODE_REL_PINNED_HARD);
	hrtimer_start(&timer, ns_to_ktime(200 * NSEC_PER_USEC), HRTIMER_MODE_REL_PINNED_HARD);
	wait_for_completion(&handled);
	hrtimer_cancel(&timer);
	destroy_hrtimer_on_stack(&timer);
	return 0;
}

static int hard_irq(const struct plant_request *request)
{
	return in_timer_interrupt(request, plant_hard_irq_stall);
}

static int softirq(const struct plant_request *request)
{
	return in_timer_interrupt(request, schedule_tasklet);
}

static void softirq_unload(void)
{
	tasklet_kill(&stalling_tasklet);
}

#ifdef CONFIG_X86
/*
 * NMI: sent through the interrupt controller, by the CPU's own thread or by another CPU, which also gets through where the
 * CPU does nothing else with interrupts off.
 */

#define NMI_NONE -1
#define NMI_HANDLED_NOW -2
/* The CPU that is to get one, or how far it has come. */
static atomic_t nmi_expected = ATOMIC_INIT(NMI_NONE);

static noinline int plant_nmi_stall(unsigned int command, struct pt_regs *registers)
{
	u64 begin;

	if (atomic_cmpxchg(&nmi_expected, smp_processor_id(), NMI_HANDLED_NOW) != smp_processor_id())
		return NMI_DONE;
	begin = plant_now();
	plant_spin_until(begin + current_request->length_ns);
	plant_log(current_request, begin, plant_now(), 1);
	atomic_set(&nmi_expected, NMI_NONE);
	return NMI_HANDLED;
}

static int nmi(const struct plant_request *request)
{
	u64 limit = plant_now() + NSEC_PER_SEC;

	current_request = request;
	atomic_set(&nmi_expected, request->cpu);
	apic->send_IPI_mask(cpumask_of(request->cpu), NMI_VECTOR);
	while (atomic_read(&nmi_expected) == request->cpu && plant_now() < limit)
		cpu_relax();
	if (atomic_cmpxchg(&nmi_expected, request->cpu, NMI_NONE) == request->cpu)
		return -ETIMEDOUT;
	/* The handler ends by itself. */
	while (atomic_read(&nmi_expected) != NMI_NONE)
		cpu_relax();
	return 0;
}

static int nmi_load(void)
{
	return register_nmi_handler(NMI_LOCAL, plant_nmi_stall, 0, "plant");
}

static void nmi_unload(void)
{
	unregister_nmi_handler(NMI_LOCAL, "plant");
}
#endif

/* Storm of a threaded interrupt: a line of its own, raised by the timer interrupt. */

static int storm_line = -1;
static u64 storm_begin_ns, storm_end_ns;
static unsigned int storm_interrupts;

static irqreturn_t wake_thread(int line, void *data)
{
	return IRQ_WAKE_THREAD;
}

static noinline irqreturn_t plant_irq_thread_stall(int line, void *data)
{
	u64 begin = plant_now();

	/* A line without hardware has no affinity for the thread to follow. */
	if (raw_smp_processor_id() != current_request->cpu)
		set_cpus_allowed_ptr(current, cpumask_of(current_request->cpu));
	plant_spin_until(begin + STORM_WORK_NS);
	storm_interrupts++;
	if (begin >= storm_end_ns && storm_end_ns) {
		u64 end = plant_now();

		storm_end_ns = 0;
		plant_log(current_request, storm_begin_ns, end, storm_interrupts);
		complete(&handled);
	}
	return IRQ_HANDLED;
}

static enum hrtimer_restart raise_storm_line(struct hrtimer *timer)
{
	if (!READ_ONCE(storm_end_ns))
		return HRTIMER_NORESTART;
	generic_handle_irq(storm_line);
	hrtimer_forward_now(timer, ns_to_ktime(STORM_PERIOD_NS));
	return HRTIMER_RESTART;
}

static int irq_thread_storm(const struct plant_request *request)
{
	storm_interrupts = 0;
	storm_begin_ns = plant_now();
	storm_end_ns = storm_begin_ns + request->length_ns;
	in_timer_interrupt(request, raise_storm_line);
	/* The thread may be at the last interrupts still, and reads the request. */
	synchronize_irq(storm_line);
	return 0;
}

static int irq_thread_load(void)
{
	int error;

	/* Owned by no module: otherwise requesting the line would keep this one from being unloaded. */
	storm_line = __irq_alloc_descs(-1, 0, 1, NUMA_NO_NODE, NULL, NULL);
	if (storm_line < 0)
		return storm_line;
	irq_set_chip_and_handler(storm_line, &dummy_irq_chip, handle_simple_irq);
	error = request_threaded_irq(storm_line, wake_thread, plant_irq_thread_stall, 0, "plant", &storm_line);
	if (error)
		irq_free_desc(storm_line);
	return error;
}

static void irq_thread_unload(void)
{
	free_irq(storm_line, &storm_line);
	irq_free_desc(storm_line);
}

const struct plant_cause plant_local_causes[] = {
	{ .name = "irq-off", .function = "plant_irq_off_stall", .priority = 50, .stall = plant_irq_off_stall },
	{ .name = "preempt-off", .function = "plant_preempt_off_stall", .priority = 50, .stall = plant_preempt_off_stall },
	{ .name = "hard-irq", .function = "plant_hard_irq_stall", .priority = 50, .stall = hard_irq },
	{ .name = "softirq", .function = "plant_softirq_stall", .priority = 50, .stall = softirq,
	  .unload = softirq_unload },
#ifdef CONFIG_X86
	{ .name = "nmi", .function = "plant_nmi_stall", .priority = 50, .stall = nmi,
	  .load = nmi_load, .unload = nmi_unload },
	{ .name = "remote-nmi", .function = "plant_nmi_stall", .priority = 50, .stall = nmi,
	  .needs_other_cpu = true, .acts_on_other_cpu = true },
#endif
	{ .name = "irq-thread", .function = "plant_irq_thread_stall", .priority = 50, .stall = irq_thread_storm,
	  .load = irq_thread_load, .unload = irq_thread_unload },
	{ }
};
