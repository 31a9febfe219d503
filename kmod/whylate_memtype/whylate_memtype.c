// SPDX-License-Identifier: GPL-2.0
/*
 * Pages of a chosen memory type for user space: write-back, write-through, write-combining, uncached.
 *
 * One open file has one buffer. Its pages are taken out of the kernel's write-back direct mapping before they are mapped
 * (two mappings of one page with different types are undefined on x86), and put back before they are freed: when the file
 * is closed and unmapped, also by the end of the process.
 */
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/version.h>
#include <linux/vmalloc.h>

#include <asm/msr.h>
#include <asm/pgtable.h>
#include <asm/set_memory.h>

#include "whylate_memtype.h"

#ifndef CONFIG_X86_64
#error "this module supports only x86-64"
#endif

static unsigned long limit_mib = 256;
module_param(limit_mib, ulong, 0644);
MODULE_PARM_DESC(limit_mib, "Most memory for all open files together, in MiB");

static atomic64_t pages_held = ATOMIC64_INIT(0);

struct buffer {
	struct mutex lock;
	struct page **pages;
	unsigned long count;
	u32 mode;
};

/* The direct mapping has no write-through for RAM: such pages leave the caches there. */
static int retype(struct page **pages, unsigned long count, u32 mode)
{
	switch (mode) {
	case WHYLATE_MEMTYPE_WB:
		return 0;
	case WHYLATE_MEMTYPE_WC:
		return set_pages_array_wc(pages, count);
	default:
		return set_pages_array_uc(pages, count);
	}
}

static void free_pages_of(struct page **pages, unsigned long count, u32 mode)
{
	unsigned long i;

	if (mode != WHYLATE_MEMTYPE_WB && set_pages_array_wb(pages, count)) {
		/* A page of an unknown type must not be used by anybody else. */
		pr_err("whylate_memtype: %lu pages could not be set back to write-back and are not freed\n", count);
		return;
	}
	for (i = 0; i < count; i++)
		__free_page(pages[i]);
	atomic64_sub(count, &pages_held);
}

static int memtype_open(struct inode *inode, struct file *file)
{
	struct buffer *buffer;

	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	buffer = kzalloc(sizeof(*buffer), GFP_KERNEL);
	if (!buffer)
		return -ENOMEM;
	mutex_init(&buffer->lock);
	file->private_data = buffer;
	return 0;
}

static int memtype_release(struct inode *inode, struct file *file)
{
	struct buffer *buffer = file->private_data;

	if (buffer->pages)
		free_pages_of(buffer->pages, buffer->count, buffer->mode);
	kvfree(buffer->pages);
	kfree(buffer);
	return 0;
}

static long allocate(struct buffer *buffer, const struct whylate_memtype_allocate *asked)
{
	unsigned long count = asked->bytes >> PAGE_SHIFT, got = 0;
	struct page **pages;
	long error = -ENOMEM;

	if (!count || asked->bytes & ~PAGE_MASK || asked->mode > WHYLATE_MEMTYPE_UC || asked->reserved)
		return -EINVAL;
	if (buffer->pages)
		return -EBUSY;
	if (count > limit_mib << (20 - PAGE_SHIFT))
		return -ENOSPC;
	if (atomic64_add_return(count, &pages_held) > (s64)limit_mib << (20 - PAGE_SHIFT)) {
		atomic64_sub(count, &pages_held);
		return -ENOSPC;
	}
	pages = kvmalloc_array(count, sizeof(*pages), GFP_KERNEL);
	if (!pages)
		goto give_up;
	for (got = 0; got < count; got++) {
		if (fatal_signal_pending(current)) {
			error = -EINTR;
			goto give_up;
		}
		pages[got] = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO);
		if (!pages[got])
			goto give_up;
		cond_resched();
	}
	error = retype(pages, count, asked->mode);
	if (error) {
		/* Some may have been changed. */
		free_pages_of(pages, count, WHYLATE_MEMTYPE_UC);
		kvfree(pages);
		return error;
	}
	buffer->pages = pages;
	buffer->count = count;
	buffer->mode = asked->mode;
	return 0;

give_up:
	while (got)
		__free_page(pages[--got]);
	kvfree(pages);
	atomic64_sub(count, &pages_held);
	return error;
}

static pgprot_t protection(pgprot_t protection, u32 mode)
{
	static const enum page_cache_mode modes[] = {
		[WHYLATE_MEMTYPE_WB] = _PAGE_CACHE_MODE_WB,
		[WHYLATE_MEMTYPE_WT] = _PAGE_CACHE_MODE_WT,
		[WHYLATE_MEMTYPE_WC] = _PAGE_CACHE_MODE_WC,
		[WHYLATE_MEMTYPE_UC_MINUS] = _PAGE_CACHE_MODE_UC_MINUS,
		[WHYLATE_MEMTYPE_UC] = _PAGE_CACHE_MODE_UC,
	};

	return __pgprot((pgprot_val(protection) & ~_PAGE_CACHE_MASK) | cachemode2protval(modes[mode]));
}

static int memtype_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct buffer *buffer = file->private_data;
	unsigned long i, count = vma_pages(vma);
	int error = 0;

	/* A private mapping would copy the pages into write-back ones when they are written. */
	if (!(vma->vm_flags & VM_SHARED) || vma->vm_pgoff)
		return -EINVAL;
	mutex_lock(&buffer->lock);
	if (!buffer->pages || count > buffer->count) {
		error = -EINVAL;
		goto out;
	}
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	vm_flags_set(vma, VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP | VM_IO);
#else
	vma->vm_flags |= VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP | VM_IO;
#endif
	vma->vm_page_prot = protection(vma->vm_page_prot, buffer->mode);
	for (i = 0; i < count && !error; i++)
		error = vm_insert_page(vma, vma->vm_start + (i << PAGE_SHIFT), buffer->pages[i]);
out:
	mutex_unlock(&buffer->lock);
	return error;
}

/* The type that an entry's three bits select in the page attribute table. */
static u32 type_of(u64 flags, bool is_large)
{
	u32 low, high, index = 0;
	u64 table;

	rdmsr(MSR_IA32_CR_PAT, low, high);
	table = (u64)high << 32 | low;
	if (flags & _PAGE_PWT)
		index |= 1;
	if (flags & _PAGE_PCD)
		index |= 2;
	if (flags & (is_large ? _PAGE_PAT_LARGE : _PAGE_PAT))
		index |= 4;
	switch (table >> (8 * index) & 7) {
	case 0:
		return WHYLATE_MEMTYPE_UC;
	case 1:
		return WHYLATE_MEMTYPE_WC;
	case 4:
		return WHYLATE_MEMTYPE_WT;
	case 6:
		return WHYLATE_MEMTYPE_WB;
	case 7:
		return WHYLATE_MEMTYPE_UC_MINUS;
	default:
		return WHYLATE_MEMTYPE_UNKNOWN;
	}
}

/* Walks the caller's page tables. Interrupts are off: page tables are freed only after all CPUs have answered one. */
static bool look_up(unsigned long address, u32 *mode, unsigned long *pfn)
{
	pgd_t *pgd = pgd_offset(current->mm, address);
	p4d_t *p4d;
	pud_t *pud, pud_entry;
	pmd_t *pmd, pmd_entry;
	pte_t pte;

	if (pgd_none(*pgd) || pgd_bad(*pgd))
		return false;
	p4d = p4d_offset(pgd, address);
	if (p4d_none(*p4d) || p4d_bad(*p4d))
		return false;
	pud = pud_offset(p4d, address);
	pud_entry = READ_ONCE(*pud);
	if (!pud_present(pud_entry))
		return false;
	if (pud_val(pud_entry) & _PAGE_PSE) {
		*mode = type_of(pud_val(pud_entry), true);
		*pfn = pud_pfn(pud_entry) + ((address & ~PUD_MASK) >> PAGE_SHIFT);
		return true;
	}
	pmd = pmd_offset(pud, address);
	pmd_entry = READ_ONCE(*pmd);
	if (!pmd_present(pmd_entry))
		return false;
	if (pmd_val(pmd_entry) & _PAGE_PSE) {
		*mode = type_of(pmd_val(pmd_entry), true);
		*pfn = pmd_pfn(pmd_entry) + ((address & ~PMD_MASK) >> PAGE_SHIFT);
		return true;
	}
	pte = READ_ONCE(*pte_offset_kernel(&pmd_entry, address));
	if (!pte_present(pte))
		return false;
	*mode = type_of(pte_val(pte), false);
	*pfn = pte_pfn(pte);
	return true;
}

static long query(struct whylate_memtype_query *query)
{
	unsigned long flags, pfn = 0;
	unsigned int level;
	bool found = false;
	pte_t *direct;

	query->mapped = WHYLATE_MEMTYPE_UNKNOWN;
	query->direct = WHYLATE_MEMTYPE_UNKNOWN;
	if (query->address >= TASK_SIZE_MAX)
		return -EFAULT;
	mmap_read_lock(current->mm);
	local_irq_save(flags);
	found = look_up(query->address, &query->mapped, &pfn);
	local_irq_restore(flags);
	/* Memory of a device has no direct mapping. */
	if (found && pfn_valid(pfn)) {
		direct = lookup_address((unsigned long)pfn_to_kaddr(pfn), &level);
		if (direct && pte_present(*direct))
			query->direct = type_of(pte_val(*direct), level != PG_LEVEL_4K);
	}
	mmap_read_unlock(current->mm);
	return 0;
}

static long memtype_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	struct buffer *buffer = file->private_data;
	void __user *user = (void __user *)argument;
	struct whylate_memtype_allocate asked;
	struct whylate_memtype_query question;
	struct whylate_memtype_status status;
	long error;

	switch (command) {
	case WHYLATE_MEMTYPE_ALLOCATE:
		if (copy_from_user(&asked, user, sizeof(asked)))
			return -EFAULT;
		mutex_lock(&buffer->lock);
		error = allocate(buffer, &asked);
		mutex_unlock(&buffer->lock);
		return error;
	case WHYLATE_MEMTYPE_QUERY:
		if (copy_from_user(&question, user, sizeof(question)))
			return -EFAULT;
		error = query(&question);
		if (!error && copy_to_user(user, &question, sizeof(question)))
			return -EFAULT;
		return error;
	case WHYLATE_MEMTYPE_STATUS:
		status.pages = atomic64_read(&pages_held);
		status.bytes_max = (u64)limit_mib << 20;
		return copy_to_user(user, &status, sizeof(status)) ? -EFAULT : 0;
	default:
		return -ENOTTY;
	}
}

static const struct file_operations operations = {
	.owner = THIS_MODULE,
	.open = memtype_open,
	.release = memtype_release,
	.mmap = memtype_mmap,
	.unlocked_ioctl = memtype_ioctl,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "whylate_memtype",
	.fops = &operations,
	.mode = 0600,
};

/* For those who look without asking: pages held now. */
static int pages_get(char *text, const struct kernel_param *parameter)
{
	return sysfs_emit(text, "%lld\n", (long long)atomic64_read(&pages_held));
}

static const struct kernel_param_ops pages_operations = { .get = pages_get };
module_param_cb(pages, &pages_operations, NULL, 0444);
MODULE_PARM_DESC(pages, "Number of pages that are allocated now");

module_misc_device(device);
MODULE_LICENSE("GPL");
MODULE_AUTHOR("whylate");
MODULE_DESCRIPTION("Pages of a chosen memory type for user space");
