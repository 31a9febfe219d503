/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Triggers: the application says that it was late, by a call of a function, a static tracepoint, a text for trace_marker, or
 * the sound driver's xrun. They are counted, and the first of each half millisecond has a record. The ends of chains have the
 * same rules; each pass has a record, unless too many come.
 */
#pragma once
#include "marks.h"

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_NUMBER(max_entries, TRIGGERS);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct trigger_rule);
} trigger_rules SECTION(".maps");

/* Texts that are triggers, at the places of their rules. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_NUMBER(max_entries, TRIGGERS);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct mark_text);
} trigger_texts SECTION(".maps");

/* The same for texts that are ends of chains. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_NUMBER(max_entries, TRIGGERS);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct mark_text);
} pass_texts SECTION(".maps");

/* When calls began whose duration is compared: by thread (upper half) and rule. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_HASH);
	MAP_NUMBER(max_entries, 1);
	MAP_TYPE(key, u64);
	MAP_TYPE(value, u64);
} trigger_calls SECTION(".maps");

ALWAYS_INLINE struct trigger_rule *rule_of(u32 nth)
{
	return bpf_map_lookup_elem(&trigger_rules, &nth);
}

/* The trigger came. */
NEVER_INLINE int note_trigger(u32 nth)
{
	u64 number, task = bpf_get_current_pid_tgid(), now_ns = bpf_ktime_get_ns();
	struct trigger_rule *rule = rule_of(nth);

	if (!rule)
		return 0;
	__sync_fetch_and_add(&rule->count, 1);
	if (now_ns - rule->noted_ns < TRIGGER_REST_NS)
		return 0;
	struct cpu_state *state = state_of(bpf_get_smp_processor_id());
	struct stretch *stretch = state ? begin_stretch(state, &number) : 0;

	if (!stretch)
		return 0;
	rule->noted_ns = now_ns;
	stretch->thread = (u32)task;
	stretch->process = task >> 32;
	stretch->waker = nth;
	stretch->ready_ns = rule->count;
	stretch->lost = 0;
	bpf_get_current_comm(stretch->command, COMMAND_BYTES);
	complete_stretch(stretch, TASK_TRIGGER, now_ns, number);
	return 0;
}

/* A thread passes an end of a chain; `length` bytes at `address` follow the compared text. */
NEVER_INLINE int note_pass(u32 nth, s64 value, u64 address, u32 length)
{
	u64 number, task = bpf_get_current_pid_tgid(), now_ns = bpf_ktime_get_ns();
	struct trigger_rule *rule = rule_of(nth);
	struct cpu_state *state = state_of(bpf_get_smp_processor_id());

	/* Passes on CPUs without a ring are not recorded, and are no gap. */
	if (!rule || !state || !state->settings.ring)
		return 0;
	__sync_fetch_and_add(&rule->count, 1);
	if (now_ns - rule->noted_ns >= PASSES_TIME_NS) {
		rule->noted_ns = now_ns;
		rule->value = 0;
	}
	__sync_fetch_and_add(&rule->value, 1);
	if (rule->value > PASSES_MAX)
		return 0;
	struct stretch *stretch = begin_stretch(state, &number);

	if (!stretch)
		return 0;
	stretch->thread = (u32)task;
	stretch->process = task >> 32;
	stretch->waker = nth;
	stretch->lost = 0;
	/* A reader sees by it which passes have no record. */
	stretch->pass_number = rule->count;
	stretch->pass_value = value;
	stretch->pass_has_value = rule->operand != OPERAND_NONE;
	for (int i = 0; i < PASS_TEXT_BYTES / 8; i++)
		stretch->pass_text[i] = 0;
	if (length > PASS_TEXT_BYTES - 1)
		length = PASS_TEXT_BYTES - 1;
	/* The verifier has to see the bound where it is used. */
	__asm__ volatile("" : "+r"(length));
	if (address)
		bpf_probe_read_user(stretch->pass_text, length & (PASS_TEXT_BYTES - 1), (void *)address);
	bpf_get_current_comm(stretch->command, COMMAND_BYTES);
	complete_stretch(stretch, TASK_PASS, now_ns, number);
	return 0;
}

/* The value that the rule compares: a register of the program, or what is in its memory. */
ALWAYS_INLINE s64 value_of(void *registers, const struct trigger_rule *rule)
{
	u64 value = 0, place = (u64)registers + (rule->offset & 0x1ff);
	u32 unused_bits = 64 - 8 * (rule->width & 15);

	if (rule->operand == OPERAND_CONSTANT)
		return rule->displacement;
	bpf_probe_read_kernel(&value, sizeof(value), (void *)place);
	if (rule->operand == OPERAND_MEMORY) {
		place = value + rule->displacement;
		value = 0;
		bpf_probe_read_user(&value, sizeof(value), (void *)place);
	}
	/* The type of an argument or a result is not known: 32 bits if the upper half is empty. */
	if (!rule->width)
		return value >> 32 ? (s64)value : (s64)(s32)value;
	value <<= unused_bits & 63;
	return rule->is_signed ? (s64)value >> (unused_bits & 63) : (s64)(value >> (unused_bits & 63));
}

ALWAYS_INLINE bool holds(const struct trigger_rule *rule, s64 value)
{
	switch (rule->comparison) {
	case COMPARISON_ABOVE:
		return value > rule->value;
	case COMPARISON_AT_LEAST:
		return value >= rule->value;
	case COMPARISON_BELOW:
		return value < rule->value;
	case COMPARISON_AT_MOST:
		return value <= rule->value;
	case COMPARISON_EQUAL:
		return value == rule->value;
	case COMPARISON_DIFFERENT:
		return value != rule->value;
	}
	return 0;
}

/* A thread enters a function, or passes a static tracepoint. */
ALWAYS_INLINE void enter_trigger(void *ctx)
{
	u32 nth = (u32)bpf_get_attach_cookie(ctx);
	struct trigger_rule *rule = rule_of(nth);

	if (!rule)
		return;
	if (rule->is_pass) {
		note_pass(nth, rule->operand == OPERAND_NONE ? 0 : value_of(ctx, rule), 0, 0);
		return;
	}
	if (rule->operand == OPERAND_TOOK) {
		u64 key = bpf_get_current_pid_tgid() << 32 | nth, now_ns = bpf_ktime_get_ns();

		bpf_map_update_elem(&trigger_calls, &key, &now_ns, BPF_ANY);
		return;
	}
	if (rule->operand == OPERAND_NONE || holds(rule, value_of(ctx, rule)))
		note_trigger(nth);
}

/* A thread returns from a function. */
ALWAYS_INLINE void leave_trigger(void *ctx)
{
	u32 nth = (u32)bpf_get_attach_cookie(ctx);
	struct trigger_rule *rule = rule_of(nth);
	s64 value;

	if (!rule)
		return;
	if (rule->operand == OPERAND_TOOK) {
		u64 key = bpf_get_current_pid_tgid() << 32 | nth;
		u64 *begun_ns = bpf_map_lookup_elem(&trigger_calls, &key);

		if (!begun_ns)
			return;
		value = bpf_ktime_get_ns() - *begun_ns;
		bpf_map_delete_elem(&trigger_calls, &key);
	} else {
		value = value_of(ctx, rule);
	}
	if (holds(rule, value))
		note_trigger(nth);
}

/* A watched thread writes into trace_marker. */
NEVER_INLINE int note_texts(const struct written *written)
{
	u64 text[MARK_BYTES / 8] = {};

	if (read_text(written, text))
		return 0;
	for (u32 nth = 0; nth < TRIGGERS; nth++) {
		u32 place = nth;

		if (begins_like(bpf_map_lookup_elem(&trigger_texts, &place), text))
			note_trigger(nth);
	}
	return 0;
}

/* A thread, watched or not, writes into trace_marker: the ends of chains have their texts apart from triggers. */
NEVER_INLINE int note_passes(const struct written *written)
{
	u64 text[MARK_BYTES / 8] = {};

	if (read_text(written, text))
		return 0;
	for (u32 nth = 0; nth < TRIGGERS; nth++) {
		u32 place = nth;
		struct trigger_rule *rule = rule_of(nth);

		if (!rule || !begins_like(bpf_map_lookup_elem(&pass_texts, &place), text))
			continue;
		/* A rule for a text has the text's length as its offset. */
		u64 rest = written->length > rule->offset ? written->length - rule->offset : 0;

		note_pass(nth, 0, written->address + rule->offset, rest < PASS_TEXT_BYTES ? (u32)rest : PASS_TEXT_BYTES);
	}
	return 0;
}
