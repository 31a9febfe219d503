// SPDX-License-Identifier: GPL-2.0
/* plant: a timer interrupt that comes late, because the CPU's own timer is set later than the kernel asked for. */
#include <linux/completion.h>
#include <linux/hrtimer.h>
#include <linux/irq_work.h>
#include <asm/apic.h>

#include "plant.h"

/* From the call to the moment at which the timer is postponed, and from then to the one at which it is due. */
#define LEAD_NS (200 * NSEC_PER_USEC)
#define DUE_NS (150 * NSEC_PER_USEC)
/* The timer's rate is measured for this long. */
#define CALIBRATE_NS (20 * NSEC_PER_USEC)

static const struct plant_request *timer_request;
static u64 due_ns;
static int postponed;
static DECLARE_COMPLETION(has_come);

/* Is due first of all timers, so that no other one sets the hardware again; runs in the interrupt that comes late. */
static noinline enum hrtimer_restart plant_timer_late(struct hrtimer *timer)
{
	plant_log(timer_request, due_ns, plant_now(), 1);
	complete(&has_come);
	return HRTIMER_NORESTART;
}

/* After the timer interrupt has set the hardware for the next event: sets it for later. */
static void postpone(struct irq_work *work)
{
	u64 begin = plant_now(), spent;
	u32 before = apic->read(APIC_TMCCT), after;

	plant_spin_until(begin + CALIBRATE_NS);
	after = apic->read(APIC_TMCCT);
	spent = plant_now() - begin;
	/* A timer that compares with the time stamp counter does not count down. */
	if (!after || after >= before) {
		postponed = -EOPNOTSUPP;
		return;
	}
	apic->write(APIC_TMICT, after + div64_u64((u64)(before - after) * timer_request->length_ns, spent));
}

static struct irq_work postponing = IRQ_WORK_INIT_HARD(postpone);

static enum hrtimer_restart queue_postponing(struct hrtimer *timer)
{
	irq_work_queue(&postponing);
	return HRTIMER_NORESTART;
}

static void start(struct hrtimer *timer, enum hrtimer_restart (*function)(struct hrtimer *), u64 at_ns)
{
	plant_timer_init(timer, function, HRTIMER_MODE_ABS_PINNED_HARD);
	hrtimer_start(timer, ns_to_ktime(at_ns), HRTIMER_MODE_ABS_PINNED_HARD);
}

static int timer_late(const struct plant_request *request)
{
	struct hrtimer before, late;
	u64 now = plant_now();

	timer_request = request;
	postponed = 0;
	due_ns = now + LEAD_NS + DUE_NS;
	reinit_completion(&has_come);
	start(&late, plant_timer_late, due_ns);
	start(&before, queue_postponing, now + LEAD_NS);
	wait_for_completion(&has_come);
	hrtimer_cancel(&before);
	irq_work_sync(&postponing);
	destroy_hrtimer_on_stack(&before);
	destroy_hrtimer_on_stack(&late);
	return postponed;
}

const struct plant_cause plant_timer_causes[] = {
	{ .name = "timer-late", .function = "plant_timer_late", .priority = 50, .stall = timer_late },
	{ }
};
