// SPDX-License-Identifier: GPL-2.0
/*
 * plant: how a page of a process is mapped, from its page table entry.
 *
 * The kernel lists the memory types of device memory only; for RAM that a driver maps write-combining, the entry is the
 * only witness. Writing "PID ADDRESS" (hexadecimal) to /proc/plant_memory_type looks a page up; reading gives its type.
 */
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/pid.h>
#include <linux/proc_fs.h>
#include <linux/sched/mm.h>
#include <linux/sched/task.h>
#include <linux/seq_file.h>
#include <linux/uaccess.h>

#include "plant.h"

#define LINE_BYTES 64

/* What Linux puts into the page attribute table, by the bits PAT, PCD and PWT of an entry. */
static const char *const types[8] = { "WB", "WC", "UC-", "UC", "WB", "WP", "UC-", "WT" };
static const char *last_type = "none";

static const char *type_of(unsigned long value)
{
	int index = (value & _PAGE_PWT ? 1 : 0) | (value & _PAGE_PCD ? 2 : 0) | (value & _PAGE_PAT ? 4 : 0);

	return types[index];
}

static int look_up_page(struct mm_struct *mm, unsigned long address)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 12, 0)
	struct follow_pfnmap_args page = { .vma = vma_lookup(mm, address), .address = address };
	int error = page.vma ? follow_pfnmap_start(&page) : -EINVAL;

	if (!error) {
		last_type = type_of(pgprot_val(page.pgprot));
		follow_pfnmap_end(&page);
	}
#else
	spinlock_t *lock;
	pte_t *entry;
	int error = follow_pte(mm, address, &entry, &lock);

	if (!error) {
		last_type = type_of(pte_val(*entry));
		pte_unmap_unlock(entry, lock);
	}
#endif
	return error;
}

static int look_up(int pid, unsigned long address)
{
	struct pid *found = find_get_pid(pid);
	struct task_struct *task = get_pid_task(found, PIDTYPE_PID);
	struct mm_struct *mm;
	int error;

	put_pid(found);
	if (!task)
		return -ESRCH;
	mm = get_task_mm(task);
	put_task_struct(task);
	if (!mm)
		return -EINVAL;
	mmap_read_lock(mm);
	error = look_up_page(mm, address);
	mmap_read_unlock(mm);
	mmput(mm);
	return error;
}

static ssize_t command(struct file *file, const char __user *text, size_t length, loff_t *position)
{
	char line[LINE_BYTES];
	unsigned long address;
	int error, pid;

	if (length >= sizeof(line))
		return -E2BIG;
	if (copy_from_user(line, text, length))
		return -EFAULT;
	line[length] = 0;
	if (sscanf(line, "%d %lx", &pid, &address) != 2)
		return -EINVAL;
	error = look_up(pid, address);
	return error ?: length;
}

static int show(struct seq_file *file, void *unused)
{
	seq_printf(file, "%s\n", last_type);
	return 0;
}

static int open(struct inode *inode, struct file *file)
{
	return single_open(file, show, NULL);
}

static const struct proc_ops operations = {
	.proc_open = open, .proc_read = seq_read, .proc_lseek = seq_lseek, .proc_release = single_release,
	.proc_write = command,
};

int plant_memory_load(void)
{
	return proc_create("plant_memory_type", 0600, NULL, &operations) ? 0 : -ENOMEM;
}

void plant_memory_unload(void)
{
	remove_proc_entry("plant_memory_type", NULL);
}
