/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Marks that are texts, which a watched thread writes into the kernel's trace_marker.
 *
 * The kernel has no event for such a text to which programs can be attached, and compiles its tracing code so that no program
 * can enter it. The program therefore runs at the start of every system call, where it compares the call's number first.
 */
#pragma once
#include "tasks.h"

/* The texts of the marks at which activations begin and end, in this order. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_NUMBER(max_entries, 2);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct mark_text);
} mark_texts SECTION(".maps");

#define WRITE_X86 1
#define WRITEV_X86 20
#define WRITE_ARM64 64
#define WRITEV_ARM64 66

#define TRACEFS_MAGIC 0x74726163
/* "trace_marker", as two words. */
#define MARKER_NAME_BEGIN 0x616d5f6563617274ULL
#define MARKER_NAME_END 0x72656b72ULL

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct pt_regs___write_x86 {
	unsigned long di;
	unsigned long si;
	unsigned long dx;
};

struct pt_regs___write_arm64 {
	u64 regs[31];
	u64 orig_x0;
};

struct super_block {
	unsigned long s_magic;
};

struct inode {
	struct super_block *i_sb;
};

struct qstr {
	const unsigned char *name;
};

struct dentry {
	struct qstr d_name;
};

struct path {
	struct dentry *dentry;
};

struct file {
	struct inode *f_inode;
	struct path f_path;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct task_struct___files {
	struct files_struct *files;
};

#pragma clang attribute pop

/* What a thread is about to write. */
struct written {
	u32 file;
	/* The bytes; with several parts the first one that is not empty. */
	u64 address;
	u64 length;
};

/* struct iovec */
struct part {
	u64 address;
	u64 length;
};

/* A value of the kernel's; 0 where it cannot be read. */
#define READ(place)                                                    \
	({                                                             \
		typeof(*(place)) value = 0;                            \
		bpf_probe_read_kernel(&value, sizeof(value), (place)); \
		value;                                                 \
	})

/* Whether a system call of that number writes into a file. */
ALWAYS_INLINE bool is_write(u32 call)
{
	if (FIELD_EXISTS(((struct pt_regs___write_x86 *)0)->di))
		return call == WRITE_X86 || call == WRITEV_X86;
	return call == WRITE_ARM64 || call == WRITEV_ARM64;
}

/* What the call is about to write, from its arguments. */
ALWAYS_INLINE void find_written(void *registers, u32 call, struct written *written)
{
	u64 file = 0, place = 0, count = 0;
	bool has_parts = 0;

	if (FIELD_EXISTS(((struct pt_regs___write_x86 *)0)->di)) {
		file = READ(&((struct pt_regs___write_x86 *)registers)->di);
		place = READ(&((struct pt_regs___write_x86 *)registers)->si);
		count = READ(&((struct pt_regs___write_x86 *)registers)->dx);
		has_parts = call == WRITEV_X86;
	} else if (FIELD_EXISTS(((struct pt_regs___write_arm64 *)0)->orig_x0)) {
		file = READ(&((struct pt_regs___write_arm64 *)registers)->orig_x0);
		place = READ(&((struct pt_regs___write_arm64 *)registers)->regs[1]);
		count = READ(&((struct pt_regs___write_arm64 *)registers)->regs[2]);
		has_parts = call == WRITEV_ARM64;
	}
	struct part part = { .address = place, .length = count };

	if (has_parts) {
		bpf_probe_read_user(&part, sizeof(part), (void *)place);
		/* musl's streams write two parts, of which the first may be empty. */
		if (!part.length && count > 1)
			bpf_probe_read_user(&part, sizeof(part), (void *)(place + sizeof(part)));
	}
	written->file = (u32)file;
	written->address = part.address;
	written->length = part.length;
}

/* Whether an open file of the current process is trace_marker, wherever tracefs is mounted, and of any instance. */
ALWAYS_INLINE bool is_trace_marker(u32 number)
{
	struct task_struct___files *task = (void *)bpf_get_current_task();
	struct files_struct *files = READ(&task->files);
	struct fdtable *table = READ(&files->fdt);

	if (number >= READ(&table->max_fds))
		return 0;
	struct file **places = READ(&table->fd);
	struct file *file = READ(places + number);
	struct inode *inode = READ(&file->f_inode);
	struct super_block *system = READ(&inode->i_sb);

	if (LIKELY(READ(&system->s_magic) != TRACEFS_MAGIC))
		return 0;
	struct dentry *entry = READ(&file->f_path.dentry);
	u64 name[2] = {};

	bpf_probe_read_kernel_str(name, sizeof(name), READ(&entry->d_name.name));
	return name[0] == MARKER_NAME_BEGIN && name[1] == MARKER_NAME_END;
}

/* A thread enters a system call: whether it writes into trace_marker. */
ALWAYS_INLINE bool writes_any_text(u64 *ctx, struct written *written)
{
	u32 call = (u32)ctx[1];

	if (LIKELY(!is_write(call)))
		return 0;
	find_written((void *)ctx[0], call, written);
	return is_trace_marker(written->file);
}

/* The same for watched threads only. */
ALWAYS_INLINE bool writes_text(u64 *ctx, struct written *written)
{
	if (LIKELY(!is_write((u32)ctx[1])) || LIKELY(!has_flag((u32)bpf_get_current_pid_tgid(), SLOT_WATCHED)))
		return 0;
	return writes_any_text(ctx, written);
}

/* Reads the first bytes of a written text; 0 if its memory could be read. */
ALWAYS_INLINE long read_text(const struct written *written, u64 text[MARK_BYTES / 8])
{
	u32 length = MARK_BYTES - 1;

	if (written->length < length)
		length = written->length;
	/* The verifier has to see the bound where it is used. */
	__asm__ volatile("" : "+r"(length));
	return bpf_probe_read_user(text, length & (MARK_BYTES - 1), (void *)written->address);
}

/* Whether a text begins like this mark, if there is one. */
ALWAYS_INLINE bool begins_like(const struct mark_text *mark, const u64 *text)
{
	u64 different = 0;

	if (!mark || !mark->text[0])
		return 0;
	for (int i = 0; i < MARK_BYTES / 8; i++)
		different |= (text[i] ^ mark->text[i]) & mark->mask[i];
	return !different;
}

/* Whether a text begins like the mark at which activations begin (0), or end (1). */
ALWAYS_INLINE bool is_mark(u32 which, const u64 *text)
{
	return begins_like(bpf_map_lookup_elem(&mark_texts, &which), text);
}

/* A watched thread writes into trace_marker. */
ALWAYS_INLINE void note_written(const struct written *written)
{
	u32 zero = 0;
	u64 text[MARK_BYTES / 8] = {};

	if (read_text(written, text)) {
		struct task_losses *losses = bpf_map_lookup_elem(&task_losses, &zero);

		if (losses)
			__sync_fetch_and_add(&losses->unread_texts, 1);
		return;
	}
	if (is_mark(0, text))
		note_mark(TASK_BEGIN);
	else if (is_mark(1, text))
		note_mark(TASK_END);
}
