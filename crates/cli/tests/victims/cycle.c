// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A thread that works in cycles, sleeps in the middle of them, and logs how long each took: the truth by which `whylate watch` is judged.
 *
 *   cycle KEY=VALUE...
 *     name=TEXT        its name (victim)
 *     release=KIND     how it waits for its work: absolute, relative, timerfd, epoll, signal, pipe, condition
 *     middle=KIND      where it sleeps in the middle: none, rwlock, mutex, inherit, semaphore, condition, pipe, write, fcntl, flock, pause, until,
 *                      socket, faults, file
 *     every=N          in one of N cycles (10); hold=US for so long (4000)
 *     period=US (5000) work=US on each side of that (100) cycles=N (400) cpu=N priority=N (50; 0: ordinary)
 *     thief=US         another thread of higher priority takes the CPU for so long at times (0)
 *     marks=1          calls cycle_begin and cycle_end
 * The last line that it prints: name thread cycles max_ns, then the ns of each cycle, in their order.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
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

static const char *name = "victim", *release = "absolute", *middle = "none";
static long every = 10, hold_us = 4000, period_us = 5000, work_us = 100, cycles = 400, cpu = -1, priority = 50, thief_us, marks;
static uint64_t took_ns[CYCLES_MAX];
static volatile int is_over;

static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, inherit, paper = PTHREAD_MUTEX_INITIALIZER, job = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t answer = PTHREAD_COND_INITIALIZER, arrival = PTHREAD_COND_INITIALIZER;
static sem_t semaphore, asked, held;
static int question[2], reply[2], full[2], pair[2], arrivals[2], lock_file, other_lock_file;
static int has_answer, jobs;
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

/* Asked by the victim, it takes the lock, says so, and lets it go after the time; or answers after it. */
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
	char byte = 0;
	uint64_t next_ns = now_ns();

	is("producer", priority ? priority + 2 : 0, cpu >= 0 ? 1 - cpu : -1);
	while (!is_over) {
		next_ns += period_us * 1000;
		sleep_until(next_ns);
		if (!strcmp(release, "pipe")) {
			if (write(arrivals[1], &byte, 1) < 0)
				return 0;
		} else {
			pthread_mutex_lock(&job);
			jobs++;
			pthread_cond_signal(&arrival);
			pthread_mutex_unlock(&job);
		}
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

static void in_the_middle(void)
{
	char byte = 0;
	static char bytes[65536];
	struct flock range = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	int asks = !is_middle("none") && !is_middle("pause") && !is_middle("until") && !is_middle("faults") && !is_middle("file");

	if (is_middle("write") && write(full[1], bytes, sizeof(bytes)) < 0)
		return;
	if (asks) {
		int was = 0;

		/* It has the lock before the victim goes on, which does not sleep for that. */
		sem_post(&asked);
		while (sem_trywait(&held) && was++ < 100000000)
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
		if (read(reply[0], &byte, 1) < 0)
			return;
	} else if (is_middle("socket")) {
		recv(pair[0], &byte, 1, 0);
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
	} else if (is_middle("faults")) {
		char *pages = mmap(0, FAULT_PAGES * 4096ul, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		madvise(pages, FAULT_PAGES * 4096ul, MADV_NOHUGEPAGE);
		for (long i = 0; i < FAULT_PAGES; i++)
			pages[i * 4096] = 1;
		munmap(pages, FAULT_PAGES * 4096ul);
	}
}

static void *victim(void *unused)
{
	unsigned seed = 3 + getpid();
	uint64_t next_ns, begin_ns;
	int timer = timerfd_create(CLOCK_MONOTONIC, 0), poll = epoll_create1(0), taken = 0;
	struct epoll_event event = { .events = EPOLLIN };
	sigset_t signals;
	timer_t signaller;

	is(name, priority, cpu);
	sigemptyset(&signals);
	sigaddset(&signals, SIGRTMIN);
	epoll_ctl(poll, EPOLL_CTL_ADD, timer, &event);
	next_ns = now_ns() + 2 * period_us * 1000;
	struct itimerspec times = { .it_value = at(next_ns), .it_interval = at(period_us * 1000) };

	timerfd_settime(timer, TFD_TIMER_ABSTIME, &times, 0);
	if (!strcmp(release, "signal")) {
		struct sigevent notice = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN };

		notice._sigev_un._tid = gettid();
		timer_create(CLOCK_MONOTONIC, &notice, &signaller);
		timer_settime(signaller, TIMER_ABSTIME, &times, 0);
	}
	for (long cycle = 0; cycle < cycles; cycle++) {
		uint64_t expired = 1;
		char byte;

		begin_ns = 0;
		if (!strcmp(release, "absolute")) {
			sleep_until(next_ns);
			begin_ns = next_ns;
			next_ns += period_us * 1000;
			while (next_ns < now_ns())
				next_ns += period_us * 1000;
		} else if (!strcmp(release, "relative")) {
			usleep(period_us);
		} else if (!strcmp(release, "timerfd")) {
			if (read(timer, &expired, sizeof(expired)) < 0)
				break;
		} else if (!strcmp(release, "epoll")) {
			epoll_wait(poll, &event, 1, -1);
			if (read(timer, &expired, sizeof(expired)) < 0)
				break;
		} else if (!strcmp(release, "signal")) {
			int signal;

			sigwait(&signals, &signal);
		} else if (!strcmp(release, "pipe")) {
			if (read(arrivals[0], &byte, 1) < 0)
				break;
		} else {
			pthread_mutex_lock(&job);
			while (taken == jobs)
				pthread_cond_wait(&arrival, &job);
			taken = jobs;
			pthread_mutex_unlock(&job);
		}
		if (!begin_ns)
			begin_ns = now_ns();
		if (marks)
			cycle_begin();
		spin(work_us);
		if (rand_r(&seed) % every == 0)
			in_the_middle();
		spin(work_us);
		if (marks)
			cycle_end();
		took_ns[cycle] = now_ns() - begin_ns;
	}
	uint64_t most_ns = 0;

	for (long cycle = 0; cycle < cycles; cycle++) {
		if (took_ns[cycle] > most_ns)
			most_ns = took_ns[cycle];
	}
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
		{ "name", 0, &name }, { "release", 0, &release }, { "middle", 0, &middle }, { "every", &every, 0 },
		{ "hold", &hold_us, 0 }, { "period", &period_us, 0 }, { "work", &work_us, 0 }, { "cycles", &cycles, 0 },
		{ "cpu", &cpu, 0 }, { "priority", &priority, 0 }, { "thief", &thief_us, 0 }, { "marks", &marks, 0 },
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
	if (pipe(question) || pipe(reply) || pipe(full) || pipe(arrivals) || socketpair(AF_UNIX, SOCK_DGRAM, 0, pair))
		return 1;
	fcntl(full[1], F_SETPIPE_SZ, 65536);
	pthread_create(&threads[started++], 0, holder, 0);
	if (!strcmp(release, "pipe") || !strcmp(release, "condition"))
		pthread_create(&threads[started++], 0, producer, 0);
	if (thief_us)
		pthread_create(&threads[started++], 0, thief, 0);
	pthread_create(&threads[started], 0, victim, 0);
	pthread_join(threads[started], 0);
	is_over = 1;
	return 0;
}
