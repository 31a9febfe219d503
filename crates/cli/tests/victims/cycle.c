// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A thread that works in cycles, sleeps in the middle of them, and logs how long each took: the ground truth for tests of `whylate watch`.
 *
 *   cycle KEY=VALUE...
 *     name=TEXT        its name (victim)
 *     release=KIND     how it waits for its work: absolute, relative, timerfd, epoll, signal, pipe, condition, socket, eventfd, word
 *     jitter=US        each period is longer by a random time of up to that (0)
 *     middle=KIND      where it sleeps in the middle: none, rwlock, mutex, inherit, semaphore, condition, pipe, write, fcntl, flock, pause, until,
 *                      socket, faults, trim, locked, bulk, file, eventfd, word (a futex that it also wakes), same (where it waits for its work); KIND+KIND for several
 *     every=N          in one of N cycles (10); hold=US for so long (4000)
 *     period=US (5000) work=US on each side of that (100) cycles=N (400) cpu=N priority=N (50; 0: ordinary)
 *     thief=US         another thread of higher priority takes the CPU for so long at times (0)
 *     helper=1         reads of the thread are in one function, which is called from several places
 *     marks=1          calls cycle_begin and cycle_end
 *     stamps=1         prints two lines before the last one: when each cycle began, and when its work was handed in
 * The last line that it prints: name thread cycles max_ns, then the ns of each cycle, in their order.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define CYCLES_MAX 100000
#define FAULT_PAGES 2048

static const char *name = "victim", *release = "absolute", *middles = "none";
/* The current one of `middles`. */
static char middle[32] = "none";
static long every = 10, hold_us = 4000, period_us = 5000, work_us = 100, cycles = 400, cpu = -1, priority = 50, thief_us, marks, jitter_us, helper, stamps;
static uint64_t took_ns[CYCLES_MAX], began_ns[CYCLES_MAX], due_ns[CYCLES_MAX], handed_ns[CYCLES_MAX];
static unsigned handed, received;
static volatile int is_over;

static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, inherit, paper = PTHREAD_MUTEX_INITIALIZER, job = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t answer = PTHREAD_COND_INITIALIZER, arrival = PTHREAD_COND_INITIALIZER;
static sem_t semaphore, asked, held;
static int question[2], reply[2], full[2], pair[2], arrivals[2], streams[2], lock_file, other_lock_file, answers_event, arrivals_event;
static int has_answer, jobs, answer_word, job_word;
static char path[64];

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static struct timespec at(uint64_t ns)
{
	return (struct timespec){ .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 };
}

static void sleep_until(uint64_t ns)
{
	struct timespec until = at(ns);

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, 0) == EINTR)
		;
}

static void spin(uint64_t us)
{
	uint64_t end = now_ns() + us * 1000;

	while (now_ns() < end)
		;
}

static void is(const char *called, long at_priority, long at_cpu)
{
	struct sched_param parameter = { .sched_priority = at_priority };
	cpu_set_t cpus;

	prctl(PR_SET_NAME, called);
	CPU_ZERO(&cpus);
	CPU_SET(at_cpu, &cpus);
	if (at_cpu >= 0)
		pthread_setaffinity_np(pthread_self(), sizeof(cpus), &cpus);
	if (at_priority > 0)
		pthread_setschedparam(pthread_self(), SCHED_FIFO, &parameter);
}

static int is_release(const char *kind)
{
	return !strcmp(release, kind);
}

static int is_middle(const char *kind)
{
	return !strcmp(middle, kind);
}

__attribute__((noinline)) void cycle_begin(void)
{
	__asm__ volatile("");
}

__attribute__((noinline)) void cycle_end(void)
{
	__asm__ volatile("");
}

static long futex(int *word, int command, int value)
{
	return syscall(SYS_futex, word, command | FUTEX_PRIVATE_FLAG, value, 0, 0, 0);
}

static void take_word(int *word)
{
	int was;

	while (!(was = __atomic_load_n(word, __ATOMIC_SEQ_CST)) || !__atomic_compare_exchange_n(word, &was, was - 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		if (!was)
			futex(word, FUTEX_WAIT, 0);
}

static void give_word(int *word)
{
	__atomic_add_fetch(word, 1, __ATOMIC_SEQ_CST);
	futex(word, FUTEX_WAKE, 1);
}

__attribute__((noinline)) static long read_some(int file, void *to, unsigned long bytes)
{
	long got = read(file, to, bytes);

	__asm__ volatile("" : "+r"(got));
	return got;
}

/* Hands in a piece of work. */
static int arrive(void)
{
	char byte = 0;

	handed_ns[__atomic_fetch_add(&handed, 1, __ATOMIC_SEQ_CST) % CYCLES_MAX] = now_ns();
	if (is_release("pipe"))
		return write(arrivals[1], &byte, 1) < 0;
	if (is_release("socket"))
		return send(streams[1], &byte, 1, 0) < 0;
	if (is_release("eventfd"))
		return eventfd_write(arrivals_event, 1);
	if (is_release("word")) {
		give_word(&job_word);
		return 0;
	}
	pthread_mutex_lock(&job);
	jobs++;
	pthread_cond_signal(&arrival);
	pthread_mutex_unlock(&job);
	return 0;
}

static int brings_work(void)
{
	return is_release("pipe") || is_release("condition") || is_release("socket") || is_release("eventfd") || is_release("word");
}

/* On request of the victim it takes the lock, confirms, and releases it after the time; or it answers after the time. */
static void *holder(void *unused)
{
	char byte = 0, bytes[4096];

	is("holder", priority ? priority + 1 : 0, cpu >= 0 ? 1 - cpu : -1);
	for (;;) {
		struct flock range = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

		while (sem_wait(&asked))
			;
		if (is_over)
			return unused;
		if (is_middle("rwlock"))
			pthread_rwlock_wrlock(&rwlock);
		else if (is_middle("mutex"))
			pthread_mutex_lock(&mutex);
		else if (is_middle("inherit"))
			pthread_mutex_lock(&inherit);
		else if (is_middle("fcntl"))
			fcntl(other_lock_file, F_OFD_SETLKW, &range);
		else if (is_middle("flock"))
			flock(other_lock_file, LOCK_EX);
		sem_post(&held);
		if (is_middle("inherit"))
			spin(hold_us);
		else
			usleep(hold_us);
		if (is_middle("rwlock")) {
			pthread_rwlock_unlock(&rwlock);
		} else if (is_middle("mutex")) {
			pthread_mutex_unlock(&mutex);
		} else if (is_middle("inherit")) {
			pthread_mutex_unlock(&inherit);
		} else if (is_middle("fcntl")) {
			range.l_type = F_UNLCK;
			fcntl(other_lock_file, F_OFD_SETLK, &range);
		} else if (is_middle("flock")) {
			flock(other_lock_file, LOCK_UN);
		} else if (is_middle("semaphore")) {
			sem_post(&semaphore);
		} else if (is_middle("condition")) {
			pthread_mutex_lock(&paper);
			has_answer = 1;
			pthread_cond_signal(&answer);
			pthread_mutex_unlock(&paper);
		} else if (is_middle("pipe")) {
			if (write(reply[1], &byte, 1) < 0)
				return 0;
		} else if (is_middle("socket")) {
			if (send(pair[1], &byte, 1, 0) < 0)
				return 0;
		} else if (is_middle("eventfd")) {
			eventfd_write(answers_event, 1);
		} else if (is_middle("word")) {
			give_word(&answer_word);
		} else if (is_middle("same")) {
			if (arrive())
				return 0;
		} else if (is_middle("write")) {
			for (int i = 0; i < 17; i++) {
				if (read(full[0], bytes, sizeof(bytes)) < 0)
					return 0;
			}
		}
	}
}

static void *producer(void *unused)
{
	unsigned seed = 5 + getpid();
	uint64_t next_ns = now_ns();

	is("producer", priority ? priority + 2 : 0, cpu >= 0 ? 1 - cpu : -1);
	while (!is_over) {
		next_ns += period_us * 1000 + (jitter_us ? rand_r(&seed) % (jitter_us * 1000) : 0);
		sleep_until(next_ns);
		if (arrive())
			return 0;
	}
	return unused;
}

static void *thief(void *unused)
{
	unsigned seed = 7;

	is("thief", priority ? priority + 10 : 20, cpu);
	while (!is_over) {
		usleep(period_us * (20 + rand_r(&seed) % 20));
		spin(thief_us);
	}
	return unused;
}

static int taken;

static void await_job(void)
{
	pthread_mutex_lock(&job);
	while (taken == jobs)
		pthread_cond_wait(&arrival, &job);
	taken++;
	pthread_mutex_unlock(&job);
}

static void in_the_middle(void)
{
	char byte = 0;
	static char bytes[65536];
	struct flock range = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	static const char *alone[] = { "none", "pause", "until", "faults", "trim", "locked", "bulk", "file" };
	int asks = !is_middle("same") || brings_work();
	/* Own work is as long on a fast machine. */
	uint64_t until_ns = now_ns() + hold_us * 1000;

	for (unsigned kind = 0; kind < sizeof(alone) / sizeof(alone[0]); kind++)
		asks &= !is_middle(alone[kind]);

	if (is_middle("write") && write(full[1], bytes, sizeof(bytes)) < 0)
		return;
	if (asks) {
		/* It has the lock before the victim continues; the victim does not sleep for this. If other programs keep the
		 * holder off its CPU, the victim goes on. */
		uint64_t give_up_ns = now_ns() + 200000000;

		sem_post(&asked);
		while (sem_trywait(&held) && now_ns() < give_up_ns)
			sched_yield();
	}
	if (is_middle("rwlock")) {
		pthread_rwlock_rdlock(&rwlock);
		pthread_rwlock_unlock(&rwlock);
	} else if (is_middle("mutex")) {
		pthread_mutex_lock(&mutex);
		pthread_mutex_unlock(&mutex);
	} else if (is_middle("inherit")) {
		pthread_mutex_lock(&inherit);
		pthread_mutex_unlock(&inherit);
	} else if (is_middle("semaphore")) {
		sem_wait(&semaphore);
	} else if (is_middle("condition")) {
		pthread_mutex_lock(&paper);
		while (!has_answer)
			pthread_cond_wait(&answer, &paper);
		has_answer = 0;
		pthread_mutex_unlock(&paper);
	} else if (is_middle("pipe")) {
		if ((helper ? read_some(reply[0], &byte, 1) : read(reply[0], &byte, 1)) < 0)
			return;
	} else if (is_middle("socket")) {
		recv(pair[0], &byte, 1, 0);
	} else if (is_middle("eventfd")) {
		eventfd_t events;

		eventfd_read(answers_event, &events);
	} else if (is_middle("word")) {
		take_word(&answer_word);
		futex(&answer_word, FUTEX_WAKE, 1);
	} else if (is_middle("same")) {
		received += brings_work();
		if (is_release("absolute"))
			sleep_until(now_ns() + hold_us * 1000);
		else if (is_release("pipe"))
			asks = (helper ? read_some(arrivals[0], &byte, 1) : read(arrivals[0], &byte, 1)) == 1;
		else if (is_release("socket"))
			recv(streams[0], &byte, 1, 0);
		else if (is_release("eventfd"))
			asks = read(arrivals_event, bytes, 8) == 8;
		else if (is_release("word"))
			take_word(&job_word);
		else if (is_release("condition"))
			await_job();
		else
			usleep(hold_us);
	} else if (is_middle("write")) {
		if (write(full[1], bytes, 4096) < 0)
			return;
	} else if (is_middle("fcntl")) {
		fcntl(lock_file, F_OFD_SETLKW, &range);
		range.l_type = F_UNLCK;
		fcntl(lock_file, F_OFD_SETLK, &range);
	} else if (is_middle("flock")) {
		flock(lock_file, LOCK_EX);
		flock(lock_file, LOCK_UN);
	} else if (is_middle("pause")) {
		usleep(hold_us);
	} else if (is_middle("until")) {
		sleep_until(now_ns() + hold_us * 1000);
	} else if (is_middle("file")) {
		if (write(lock_file, bytes, 65536) < 0 || fsync(lock_file) || lseek(lock_file, 0, SEEK_SET))
			return;
	} else if (is_middle("trim")) {
		char *pages = mmap(0, FAULT_PAGES * 4096ul, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

		do {
			madvise(pages, FAULT_PAGES * 4096ul, MADV_DONTNEED);
			madvise(pages, FAULT_PAGES * 4096ul, MADV_POPULATE_WRITE);
		} while (now_ns() < until_ns);
		munmap(pages, FAULT_PAGES * 4096ul);
	} else if (is_middle("locked")) {
		mlockall(MCL_FUTURE);
		do
			munmap(mmap(0, FAULT_PAGES * 4096ul, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), FAULT_PAGES * 4096ul);
		while (now_ns() < until_ns);
		munlockall();
	} else if (is_middle("bulk")) {
		static char blocks[2 << 20];
		int zeros = open("/dev/zero", O_RDONLY);

		do
			asks |= read(zeros, blocks, sizeof(blocks)) > 0;
		while (now_ns() < until_ns);
		close(zeros);
	} else if (is_middle("faults")) {
		char *pages = mmap(0, FAULT_PAGES * 4096ul, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		madvise(pages, FAULT_PAGES * 4096ul, MADV_NOHUGEPAGE);
		do {
			for (long i = 0; i < FAULT_PAGES; i++)
				pages[i * 4096] = 1;
			madvise(pages, FAULT_PAGES * 4096ul, MADV_DONTNEED);
		} while (now_ns() < until_ns);
		munmap(pages, FAULT_PAGES * 4096ul);
	}
}

static void *victim(void *unused)
{
	unsigned seed = 3 + getpid();
	uint64_t next_ns, begin_ns;
	int timer = timerfd_create(CLOCK_MONOTONIC, 0), poll = epoll_create1(0);
	struct epoll_event event = { .events = EPOLLIN };
	sigset_t signals;
	timer_t signaller;

	is(name, priority, cpu);
	sigemptyset(&signals);
	sigaddset(&signals, SIGRTMIN);
	epoll_ctl(poll, EPOLL_CTL_ADD, timer, &event);
	next_ns = now_ns() + 2 * period_us * 1000;
	uint64_t first_ns = next_ns;
	struct itimerspec times = { .it_value = at(next_ns), .it_interval = at(period_us * 1000) };

	timerfd_settime(timer, TFD_TIMER_ABSTIME, &times, 0);
	if (is_release("signal")) {
		struct sigevent notice = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN };

		notice._sigev_un._tid = gettid();
		timer_create(CLOCK_MONOTONIC, &notice, &signaller);
		timer_settime(signaller, TIMER_ABSTIME, &times, 0);
	}
	for (long cycle = 0; cycle < cycles; cycle++) {
		uint64_t expired = 1, timer_ns = 0;
		char byte;

		begin_ns = 0;
		if (is_release("absolute")) {
			sleep_until(next_ns);
			begin_ns = next_ns;
			next_ns += period_us * 1000 + (jitter_us ? rand_r(&seed) % (jitter_us * 1000) : 0);
			while (next_ns < now_ns())
				next_ns += period_us * 1000;
		} else if (is_release("relative")) {
			long sleep_us = period_us + (jitter_us ? rand_r(&seed) % jitter_us : 0);

			timer_ns = now_ns() + sleep_us * 1000;
			usleep(sleep_us);
		} else if (is_release("timerfd")) {
			if (read(timer, &expired, sizeof(expired)) < 0)
				break;
		} else if (is_release("epoll")) {
			epoll_wait(poll, &event, 1, -1);
			if (read(timer, &expired, sizeof(expired)) < 0)
				break;
		} else if (is_release("signal")) {
			int signal;

			sigwait(&signals, &signal);
		} else if (is_release("pipe")) {
			if ((helper ? read_some(arrivals[0], &byte, 1) : read(arrivals[0], &byte, 1)) < 0)
				break;
		} else if (is_release("socket")) {
			if (recv(streams[0], &byte, 1, 0) < 0)
				break;
		} else if (is_release("eventfd")) {
			if (read(arrivals_event, &expired, sizeof(expired)) < 0)
				break;
		} else if (is_release("word")) {
			take_word(&job_word);
		} else {
			await_job();
		}
		if (!begin_ns)
			begin_ns = now_ns();
		due_ns[cycle] = timer_ns ? timer_ns : begin_ns;
		if (brings_work())
			due_ns[cycle] = handed_ns[received++ % CYCLES_MAX];
		else if (is_release("timerfd") || is_release("epoll") || is_release("signal"))
			due_ns[cycle] = begin_ns - (begin_ns - first_ns) % (period_us * 1000);
		if (marks)
			cycle_begin();
		spin(work_us);
		if (rand_r(&seed) % every == 0) {
			for (const char *next = middles; next;) {
				const char *end = strchr(next, '+');

				snprintf(middle, sizeof(middle), "%.*s", end ? (int)(end - next) : 31, next);
				in_the_middle();
				spin(work_us);
				next = end ? end + 1 : 0;
			}
		} else {
			spin(work_us);
		}
		if (marks)
			cycle_end();
		took_ns[cycle] = now_ns() - begin_ns;
		began_ns[cycle] = begin_ns;
	}
	uint64_t most_ns = 0;

	for (long cycle = 0; cycle < cycles; cycle++) {
		if (took_ns[cycle] > most_ns)
			most_ns = took_ns[cycle];
	}
	for (long nth = 0; stamps && nth < 2 * cycles; nth++)
		printf("%llu%c", (unsigned long long)(nth < cycles ? began_ns : due_ns)[nth % cycles], (nth + 1) % cycles ? ' ' : '\n');
	printf("%s %d %ld %llu", name, gettid(), cycles, (unsigned long long)most_ns);
	for (long cycle = 0; cycle < cycles; cycle++)
		printf(" %llu", (unsigned long long)took_ns[cycle]);
	printf("\n");
	return unused;
}

int main(int count, char **words)
{
	static const struct {
		const char *key;
		long *number;
		const char **text;
	} keys[] = {
		{ "name", 0, &name }, { "release", 0, &release }, { "middle", 0, &middles }, { "every", &every, 0 },
		{ "hold", &hold_us, 0 }, { "period", &period_us, 0 }, { "work", &work_us, 0 }, { "cycles", &cycles, 0 },
		{ "cpu", &cpu, 0 }, { "priority", &priority, 0 }, { "thief", &thief_us, 0 }, { "marks", &marks, 0 },
		{ "jitter", &jitter_us, 0 }, { "helper", &helper, 0 }, { "stamps", &stamps, 0 },
	};
	pthread_t threads[4];
	pthread_mutexattr_t attributes;
	sigset_t signals;
	int started = 0;

	for (int nth = 1; nth < count; nth++) {
		char *value = strchr(words[nth], '=');
		int known = 0;

		for (unsigned key = 0; value && key < sizeof(keys) / sizeof(keys[0]); key++) {
			if (strlen(keys[key].key) != (size_t)(value - words[nth]) || strncmp(words[nth], keys[key].key, value - words[nth]))
				continue;
			known = 1;
			if (keys[key].number)
				*keys[key].number = atol(value + 1);
			else
				*keys[key].text = value + 1;
		}
		if (!known)
			return 1;
	}
	if (cycles > CYCLES_MAX)
		return 1;
	sigemptyset(&signals);
	sigaddset(&signals, SIGRTMIN);
	pthread_sigmask(SIG_BLOCK, &signals, 0);
	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
	pthread_mutex_init(&inherit, &attributes);
	sem_init(&semaphore, 0, 0);
	sem_init(&asked, 0, 0);
	sem_init(&held, 0, 0);
	snprintf(path, sizeof(path), "/tmp/cycle-%d", getpid());
	lock_file = open(path, O_RDWR | O_CREAT, 0600);
	other_lock_file = open(path, O_RDWR);
	unlink(path);
	if (pipe(question) || pipe(reply) || pipe(full) || pipe(arrivals) || socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) || socketpair(AF_UNIX, SOCK_STREAM, 0, streams))
		return 1;
	answers_event = eventfd(0, 0);
	arrivals_event = eventfd(0, EFD_SEMAPHORE);
	fcntl(full[1], F_SETPIPE_SZ, 65536);
	pthread_create(&threads[started++], 0, holder, 0);
	if (brings_work())
		pthread_create(&threads[started++], 0, producer, 0);
	if (thief_us)
		pthread_create(&threads[started++], 0, thief, 0);
	pthread_create(&threads[started], 0, victim, 0);
	pthread_join(threads[started], 0);
	is_over = 1;
	return 0;
}
