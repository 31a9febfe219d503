// SPDX-License-Identifier: GPL-2.0
/* plant: what another CPU does to a CPU: locks, inter-processor interrupts, flushes. */
#include <linux/completion.h>
#include <linux/gfp.h>
#include <linux/kthread.h>
#include <linux/sched/task.h>
#include <linux/set_memory.h>
#include <linux/smp.h>
#include <linux/spinlock.h>
#include <linux/vmalloc.h>

#include "plant.h"

/* Pages whose attributes are changed, as a power of two. */
#define ATTRIBUTE_ORDER 4
/* Bytes that are mapped and unmapped at a time. */
#define MAPPED_BYTES (16 * PAGE_SIZE)

static noinline void plant_ipi_stall(void *data)
{
	const struct plant_request *request = data;
	u64 begin = plant_now();

	plant_spin_until(begin + request->length_ns);
	plant_log(request, begin, plant_now(), 1);
}

static int ipi(const struct plant_request *request)
{
	return smp_call_function_single(request->cpu, plant_ipi_stall, (void *)request, true);
}

static noinline int plant_tlb_flush(const struct plant_request *request)
{
	u64 begin = plant_now(), end = begin + request->length_ns;
	unsigned int flushes = 0;

	do {
		void *mapped = vmalloc(MAPPED_BYTES);

		if (!mapped)
			return -ENOMEM;
		vfree(mapped);
		/* Otherwise the flush is put off until many ranges have been unmapped. */
		vm_unmap_aliases();
		flushes++;
	} while (plant_now() < end);
	plant_log(request, begin, plant_now(), flushes);
	return 0;
}

#ifdef CONFIG_X86
static noinline int plant_page_attribute_change(const struct plant_request *request)
{
	unsigned long pages = __get_free_pages(GFP_KERNEL, ATTRIBUTE_ORDER);
	u64 begin = plant_now(), end = begin + request->length_ns;
	unsigned int changes = 0;
	int error;

	if (!pages)
		return -ENOMEM;
	do {
		error = set_memory_uc(pages, 1 << ATTRIBUTE_ORDER);
		if (error)
			break;
		error = set_memory_wb(pages, 1 << ATTRIBUTE_ORDER);
		changes += 2;
	} while (!error && plant_now() < end);
	/* Pages that could not be made write-back again must not be used by others. */
	if (!error)
		free_pages(pages, ATTRIBUTE_ORDER);
	plant_log(request, begin, plant_now(), changes);
	return error;
}
#endif

/* Raw spinlock: the holder takes it first, and keeps it for the length from the moment at which the other one waits. */

static DEFINE_RAW_SPINLOCK(contended);
static DECLARE_COMPLETION(is_held);
static u64 waiting_since_ns;

static noinline int plant_raw_spinlock_holder(void *data)
{
	const struct plant_request *request = data;
	u64 give_up = plant_now() + NSEC_PER_SEC;
	unsigned long flags;

	raw_spin_lock_irqsave(&contended, flags);
	complete(&is_held);
	while (!smp_load_acquire(&waiting_since_ns) && plant_now() < give_up)
		cpu_relax();
	plant_spin_until(waiting_since_ns + request->length_ns);
	raw_spin_unlock_irqrestore(&contended, flags);
	return 0;
}

static noinline void plant_raw_spinlock_stall(const struct plant_request *request)
{
	unsigned long flags;
	u64 begin, end;

	local_irq_save(flags);
	begin = plant_now();
	smp_store_release(&waiting_since_ns, begin);
	raw_spin_lock(&contended);
	end = plant_now();
	raw_spin_unlock(&contended);
	local_irq_restore(flags);
	plant_log(request, begin, end, 1);
}

static int raw_spinlock(const struct plant_request *request)
{
	struct task_struct *holder;

	waiting_since_ns = 0;
	reinit_completion(&is_held);
	holder = plant_thread(plant_raw_spinlock_holder, (void *)request, request->from, request->priority, "holder");
	if (IS_ERR(holder))
		return PTR_ERR(holder);
	wait_for_completion(&is_held);
	plant_raw_spinlock_stall(request);
	kthread_stop(holder);
	put_task_struct(holder);
	return 0;
}

const struct plant_cause plant_remote_causes[] = {
	{ .name = "ipi", .function = "plant_ipi_stall", .needs_other_cpu = true, .acts_on_other_cpu = true,
	  .priority = 50, .stall = ipi },
	{ .name = "raw-spinlock", .function = "plant_raw_spinlock_stall", .needs_other_cpu = true, .priority = 50, .stall = raw_spinlock },
	{ .name = "tlb", .function = "plant_tlb_flush", .needs_other_cpu = true, .acts_on_other_cpu = true,
	  .stall = plant_tlb_flush },
#ifdef CONFIG_X86
	{ .name = "page-attribute", .function = "plant_page_attribute_change", .needs_other_cpu = true,
	  .acts_on_other_cpu = true, .stall = plant_page_attribute_change },
#endif
	{ }
};
