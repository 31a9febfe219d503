// SPDX-License-Identifier: GPL-2.0
/*
 * plant: the command file /proc/plant and the log behind it.
 *
 * Writing "CAUSE LENGTH [cpu=N] [from=N] [after=TIME] [every=TIME] [count=N] [priority=N] [in=FUNCTION]" stalls, and returns when
 * that is done; "clear" empties the log. Reading shows one line for each stall: who, where, from when to when on
 * CLOCK_MONOTONIC. Times have a unit: ns, us, ms or s.
 */
#include <linux/atomic.h>
#include <linux/completion.h>
#include <linux/cpu.h>
#include <linux/delay.h>
#include <linux/kprobes.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/proc_fs.h>
#include <linux/sched/task.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <uapi/linux/sched/types.h>

#include "plant.h"

#define LOG_ENTRIES 8192
#define LINE_BYTES 200
#define LENGTH_NS_MAX (10 * NSEC_PER_SEC)

struct log_entry {
	const struct plant_cause *cause;
	int cpu, from;
	u64 begin_ns, end_ns;
	unsigned int events;
};

static const struct plant_cause *const tables[] = {
	plant_local_causes, plant_remote_causes, plant_thread_causes, plant_probe_causes,
#ifdef CONFIG_X86
	plant_timer_causes, plant_power_causes,
#endif
};

static struct log_entry *log_entries;
static atomic_t log_used = ATOMIC_INIT(0);
static DEFINE_MUTEX(one_at_a_time);
static DECLARE_COMPLETION(acted);
static int (*set_scheduler)(struct task_struct *, int, const struct sched_param *);

void plant_log(const struct plant_request *request, u64 begin_ns, u64 end_ns, unsigned int events)
{
	int index = atomic_fetch_inc(&log_used);

	if (index >= LOG_ENTRIES)
		return;
	log_entries[index] = (struct log_entry) {
		.cause = request->cause, .cpu = request->cpu, .from = request->from,
		.begin_ns = begin_ns, .end_ns = end_ns, .events = events,
	};
}

struct task_struct *plant_thread(int (*body)(void *), void *data, int cpu, int priority, const char *name)
{
	struct sched_param param = { .sched_priority = priority };
	struct task_struct *thread = kthread_create(body, data, "plant-%s", name);

	if (IS_ERR(thread))
		return thread;
	kthread_bind(thread, cpu);
	if (priority > 0)
		set_scheduler(thread, SCHED_FIFO, &param);
	get_task_struct(thread);
	wake_up_process(thread);
	return thread;
}

/*
 * Sleeps without the timer wheel: its expiry comes with a tick, and on PREEMPT_RT by way of another thread, both of which
 * would lie right before the stall.
 */
static void pause_for(u64 ns)
{
	unsigned long us = ns / NSEC_PER_USEC;

	if (us)
		usleep_range(us, us + 1);
}

/* The acting thread: does all stalls of a request. */
static int act(void *data)
{
	const struct plant_request *request = data;
	unsigned int done;
	int error = 0;

	pause_for(request->after_ns);
	for (done = 0; done < request->count && !error; done++) {
		if (done)
			pause_for(request->every_ns);
		error = request->cause->stall(request);
	}
	/* Waking the writer is no part of what is planted: it comes later. */
	pause_for(10 * NSEC_PER_MSEC);
	complete(&acted);
	return error;
}

static int carry_out(struct plant_request *request)
{
	int cpu = request->cause->acts_on_other_cpu ? request->from : request->cpu;
	struct task_struct *thread;
	int error;

	reinit_completion(&acted);
	thread = plant_thread(act, request, cpu, request->priority, request->cause->name);
	if (IS_ERR(thread))
		return PTR_ERR(thread);
	/* A thread that is stopped before it has begun would do nothing. */
	wait_for_completion(&acted);
	error = kthread_stop(thread);
	put_task_struct(thread);
	return error;
}

static const struct plant_cause *find_cause(const char *name)
{
	const struct plant_cause *cause;
	size_t table;

	for (table = 0; table < ARRAY_SIZE(tables); table++)
		for (cause = tables[table]; cause->name; cause++)
			if (!strcmp(cause->name, name))
				return cause;
	return NULL;
}

static int parse_time(const char *text, u64 *ns)
{
	static const struct { const char *unit; u64 ns; } units[] = {
		{ "ns", 1 }, { "us", NSEC_PER_USEC }, { "ms", NSEC_PER_MSEC }, { "s", NSEC_PER_SEC },
	};
	char digits[16];
	size_t length = strspn(text, "0123456789"), i;
	u64 number;

	if (!length || length >= sizeof(digits))
		return -EINVAL;
	strscpy(digits, text, length + 1);
	if (kstrtou64(digits, 10, &number))
		return -EINVAL;
	for (i = 0; i < ARRAY_SIZE(units); i++)
		if (!strcmp(text + length, units[i].unit)) {
			*ns = number * units[i].ns;
			return 0;
		}
	return -EINVAL;
}

static int parse_option(char *word, struct plant_request *request)
{
	char *value = word;
	char *name = strsep(&value, "=");

	if (!value)
		return -EINVAL;
	if (!strcmp(name, "cpu"))
		return kstrtoint(value, 10, &request->cpu);
	if (!strcmp(name, "from"))
		return kstrtoint(value, 10, &request->from);
	if (!strcmp(name, "count"))
		return kstrtouint(value, 10, &request->count);
	if (!strcmp(name, "priority"))
		return kstrtoint(value, 10, &request->priority);
	if (!strcmp(name, "in")) {
		request->in = value;
		return 0;
	}
	if (!strcmp(name, "after"))
		return parse_time(value, &request->after_ns);
	if (!strcmp(name, "every"))
		return parse_time(value, &request->every_ns);
	return -EINVAL;
}

static bool is_online(int cpu)
{
	return cpu >= 0 && cpu < nr_cpu_ids && cpu_online(cpu);
}

static int parse(char *line, struct plant_request *request)
{
	char *word = strsep(&line, " ");
	int error;

	*request = (struct plant_request) { .cause = find_cause(word), .from = -1, .count = 1 };
	if (!request->cause)
		return -ENOENT;
	request->priority = request->cause->priority;
	request->every_ns = 100 * NSEC_PER_MSEC;
	word = strsep(&line, " ");
	if (!word || parse_time(word, &request->length_ns))
		return -EINVAL;
	while ((word = strsep(&line, " "))) {
		if (!*word)
			continue;
		error = parse_option(word, request);
		if (error)
			return error;
	}
	if (request->length_ns > LENGTH_NS_MAX || request->priority > 99)
		return -ERANGE;
	if (!is_online(request->cpu))
		return -ENODEV;
	if (request->cause->needs_other_cpu && (!is_online(request->from) || request->from == request->cpu))
		return -ENODEV;
	return 0;
}

static ssize_t command(struct file *file, const char __user *text, size_t length, loff_t *position)
{
	struct plant_request request;
	char line[LINE_BYTES];
	int error;

	if (length >= sizeof(line))
		return -E2BIG;
	if (copy_from_user(line, text, length))
		return -EFAULT;
	line[length] = 0;
	error = mutex_lock_interruptible(&one_at_a_time);
	if (error)
		return error;
	if (!strcmp(strim(line), "clear"))
		atomic_set(&log_used, 0);
	else
		error = parse(strim(line), &request) ?: carry_out(&request);
	mutex_unlock(&one_at_a_time);
	return error ?: length;
}

static int show(struct seq_file *file, void *unused)
{
	int used = atomic_read(&log_used), i;

	for (i = 0; i < min(used, LOG_ENTRIES); i++) {
		const struct log_entry *entry = &log_entries[i];

		seq_printf(file, "cause=%s function=%s cpu=%d", entry->cause->name, entry->cause->function, entry->cpu);
		if (entry->from >= 0)
			seq_printf(file, " from=%d", entry->from);
		seq_printf(file, " begin_ns=%llu end_ns=%llu events=%u\n", entry->begin_ns, entry->end_ns, entry->events);
	}
	if (used > LOG_ENTRIES)
		seq_printf(file, "lost=%d\n", used - LOG_ENTRIES);
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

/* Modules are not given sched_setscheduler_nocheck(), and sched_set_fifo() knows one priority only. */
static int find_set_scheduler(void)
{
	struct kprobe probe = { .symbol_name = "sched_setscheduler_nocheck" };
	int error = register_kprobe(&probe);

	if (error)
		return error;
	set_scheduler = (void *)probe.addr;
	unregister_kprobe(&probe);
	return 0;
}

static void unload_before(size_t end_table, const struct plant_cause *end_cause)
{
	const struct plant_cause *cause;
	size_t table;

	for (table = 0; table < ARRAY_SIZE(tables) && table <= end_table; table++)
		for (cause = tables[table]; cause->name && cause != end_cause; cause++)
			if (cause->unload)
				cause->unload();
}

static int load_all(void)
{
	const struct plant_cause *cause;
	size_t table;
	int error;

	for (table = 0; table < ARRAY_SIZE(tables); table++)
		for (cause = tables[table]; cause->name; cause++) {
			error = cause->load ? cause->load() : 0;
			if (error) {
				unload_before(table, cause);
				return error;
			}
		}
	return 0;
}

static int __init plant_init(void)
{
	int error = find_set_scheduler();

	if (error)
		return error;
	log_entries = kvcalloc(LOG_ENTRIES, sizeof(*log_entries), GFP_KERNEL);
	if (!log_entries)
		return -ENOMEM;
	error = load_all();
	if (error)
		goto free_log;
	if (!proc_create("plant", 0600, NULL, &operations)) {
		error = -ENOMEM;
		goto unload;
	}
	error = plant_memory_load();
	if (error)
		goto remove;
	return 0;
remove:
	remove_proc_entry("plant", NULL);
unload:
	unload_before(ARRAY_SIZE(tables), NULL);
free_log:
	kvfree(log_entries);
	return error;
}

static void __exit plant_exit(void)
{
	plant_memory_unload();
	remove_proc_entry("plant", NULL);
	unload_before(ARRAY_SIZE(tables), NULL);
	kvfree(log_entries);
}

module_init(plant_init);
module_exit(plant_exit);
MODULE_DESCRIPTION("Causes stalls of known length from functions of known name");
MODULE_LICENSE("GPL");
