/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
#ifndef WHYLATE_MEMTYPE_H
#define WHYLATE_MEMTYPE_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* Memory types. */
#define WHYLATE_MEMTYPE_WB 0
#define WHYLATE_MEMTYPE_WT 1
#define WHYLATE_MEMTYPE_WC 2
#define WHYLATE_MEMTYPE_UC_MINUS 3
#define WHYLATE_MEMTYPE_UC 4
#define WHYLATE_MEMTYPE_UNKNOWN 0xffffffffu

/* Gives the open file pages of a type; once per file. Then mmap() the file, shared, from offset 0. */
struct whylate_memtype_allocate {
	__u64 bytes;
	__u32 mode;
	__u32 reserved;
};

/* What the page tables say of an address of the caller; UNKNOWN where there is no page. */
struct whylate_memtype_query {
	__u64 address;
	__u32 mapped;	/* of the caller's own mapping */
	__u32 direct;	/* of the kernel's direct mapping of the same page */
};

struct whylate_memtype_status {
	__u64 pages;		/* held for all files */
	__u64 bytes_max;	/* that may be held */
};

#define WHYLATE_MEMTYPE_ALLOCATE _IOW('W', 0x60, struct whylate_memtype_allocate)
#define WHYLATE_MEMTYPE_QUERY _IOWR('W', 0x61, struct whylate_memtype_query)
#define WHYLATE_MEMTYPE_STATUS _IOWR('W', 0x62, struct whylate_memtype_status)

#endif
