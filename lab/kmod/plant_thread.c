// SPDX-License-Identifier: GPL-2.0
/* plant: threads that take the CPU: workqueues, higher priorities, the owner of a lock. */
#include <linux/bug.h>
#include <linux/completion.h>
#include <linux/kthread.h>
#include <linux/rtmutex.h>
#include <linux/sched/task.h>
#include <linux/workqueue.h>

#include "plant.h"

/* Priority of the owner of the rt_mutex before it is boosted. */
#define OWNER_PRIORITY 1

struct planted_work {
	struct work_struct work;
	const struct plant_request *request;
};

static noinline void plant_work_stall(struct work_struct *work)
{
	const struct plant_request *request = container_of(work, struct planted_work, work)->request;
	u64 begin = plant_now();

	plant_spin_until(begin + request->length_ns);
	plant_log(request, begin, plant_now(), 1);
}

static void stall_in(struct workqueue_struct *queue, const struct plant_request *request)
{
	struct planted_work planted = { .request = request };

	INIT_WORK_ONSTACK(&planted.work, plant_work_stall);
	queue_work_on(request->cpu, queue, &planted.work);
	flush_work(&planted.work);
	destroy_work_on_stack(&planted.work);
}

static int work(const struct plant_request *request)
{
	stall_in(system_highpri_wq, request);
	return 0;
}

/* Its worker is bound to no CPU: only on a machine with one CPU it stalls that for certain. */
static int unbound_work(const struct plant_request *request)
{
	struct workqueue_struct *queue = alloc_workqueue("plant", WQ_UNBOUND, 0);

	if (!queue)
		return -ENOMEM;
	stall_in(queue, request);
	destroy_workqueue(queue);
	return 0;
}

static noinline int plant_rt_thread_stall(const struct plant_request *request)
{
	u64 begin = plant_now();

	plant_spin_until(begin + request->length_ns);
	plant_log(request, begin, plant_now(), 1);
	return 0;
}

/*
 * Priority inversion: a thread of low priority owns an rt_mutex that the acting thread, of high priority, waits for. The
 * owner is boosted, so the acting thread waits for exactly the owner's work, and so does every thread between the two.
 */

static DEFINE_RT_MUTEX(inverted);
static DECLARE_COMPLETION(is_owned);
static DECLARE_COMPLETION(is_wanted);

static noinline void plant_rt_mutex_owner(const struct plant_request *request)
{
	u64 begin = plant_now();

	plant_spin_until(begin + request->length_ns);
	plant_log(request, begin, plant_now(), 1);
}

static int own(void *data)
{
	rt_mutex_lock(&inverted);
	complete(&is_owned);
	/* On one CPU the acting thread gets as far as the lock before this one runs again. */
	wait_for_completion(&is_wanted);
	plant_rt_mutex_owner(data);
	rt_mutex_unlock(&inverted);
	return 0;
}

static int rt_mutex(const struct plant_request *request)
{
	struct task_struct *owner;

	reinit_completion(&is_owned);
	reinit_completion(&is_wanted);
	owner = plant_thread(own, (void *)request, request->cpu, OWNER_PRIORITY, "owner");
	if (IS_ERR(owner))
		return PTR_ERR(owner);
	wait_for_completion(&is_owned);
	complete(&is_wanted);
	rt_mutex_lock(&inverted);
	rt_mutex_unlock(&inverted);
	kthread_stop(owner);
	put_task_struct(owner);
	return 0;
}

/* Not a stall: makes the kernel complain, so that the lab can show that it notices. */
static int warning(const struct plant_request *request)
{
	u64 now = plant_now();

	WARN(1, "plant: a warning was asked for\n");
	plant_log(request, now, now, 1);
	return 0;
}

const struct plant_cause plant_thread_causes[] = {
	{ .name = "work", .function = "plant_work_stall", .stall = work },
	{ .name = "unbound-work", .function = "plant_work_stall", .stall = unbound_work },
	{ .name = "rt-thread", .function = "plant_rt_thread_stall", .priority = 98, .stall = plant_rt_thread_stall },
	{ .name = "rt-mutex", .function = "plant_rt_mutex_owner", .priority = 98, .stall = rt_mutex },
	{ .name = "warning", .function = "warning", .stall = warning },
	{ }
};
