// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A thread `control` that works each 10 ms and logs how long each cycle took from when its timer expired; in about one of ten cycles one kind of
 * lateness is planted. The ground truth of `../watch_classes.py`.
 *
 *   classes KIND CYCLES CPU
 *     thief      a thread of SCHED_FIFO 60 runs for 5 ms
 *     raiser     a nice-0 thread raises itself to SCHED_FIFO 80, runs for 5 ms, and lowers itself
 *     boosted    a nice-0 thread holds a mutex with priority inheritance for 5 ms while a thread of SCHED_FIFO 90 waits for it
 *     owner      `control` waits for that mutex, whose owner runs on another CPU
 *     deadline   `control` has SCHED_DEADLINE and uses up its runtime
 *     own        `control` itself works for 5 ms longer, in `burn`
 *     plan       the same, in `replan`, which `controller_update` calls and which makes no call itself
 *     trim       `control` frees 8 MiB to the kernel, in `malloc_trim`
 *     mutex      a nice-0 thread `holder` on another CPU holds a mutex without priority inheritance for 5 ms
 *     log        `control` writes lines to a pipe that `reader` empties only every 100 ms
 *     many       the same as `own`, while 200 other threads work each 10 ms
 *     faults     `control` touches 2,048 new pages
 *     map        `control` maps memory while another thread populates 512 MiB
 *     flock      another process holds the file's lock for 5 ms
 *     datagram   `control` asks by UDP, and `server` answers after 5 ms
 *     quota      `control` is an ordinary thread of a cgroup whose quota is used up by `hog`
 *     throttle   `hog` of SCHED_FIFO 40 never sleeps, so that the fair server runs `starved`
 * Prints: thread cycles, then the response of each cycle in ns, and one line "done".
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <malloc.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <signal.h>

#define PERIOD_NS 10000000ull
#define HOLD_US 5000
#define CYCLES_MAX 100000

static const char *kind;
static int cpu, cycles, control_id;
static uint64_t took_ns[CYCLES_MAX];
static pthread_mutex_t inherit;
static volatile int turn, is_over;
static pthread_mutex_t plain = PTHREAD_MUTEX_INITIALIZER;
static int log_pipe[2];
static uint64_t steps_per_ms;
static volatile uint64_t value;
static int lock_file, server_socket, client_socket;
static struct sockaddr_in server_address;
static char group[128];

static int is(const char *of)
{
	return !strcmp(kind, of);
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static void sleep_until(uint64_t ns)
{
	struct timespec until = { .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, 0))
		;
}

__attribute__((noinline)) static void burn(uint64_t us)
{
	uint64_t end = now_ns() + us * 1000;

	while (now_ns() < end)
		;
}

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void begin(const char *name, int priority, int on)
{
	struct sched_param parameter = { .sched_priority = priority };
	cpu_set_t cpus;

	prctl(PR_SET_NAME, name);
	CPU_ZERO(&cpus);
	CPU_SET(on, &cpus);
	if (sched_setaffinity(0, sizeof(cpus), &cpus))
		fail("sched_setaffinity");
	if (priority && sched_setscheduler(0, SCHED_FIFO, &parameter))
		fail("sched_setscheduler");
}

static void set_priority(int priority)
{
	struct sched_param parameter = { .sched_priority = priority };

	if (sched_setscheduler(0, priority ? SCHED_FIFO : SCHED_OTHER, &parameter))
		fail("sched_setscheduler");
}

static pthread_t start(void *(*work)(void *))
{
	pthread_t thread;

	if (pthread_create(&thread, 0, work, 0))
		fail("pthread_create");
	return thread;
}


static uint64_t epoch_ns;

static void *thief(void *unused)
{
	begin("thief", 60, cpu);
	for (uint64_t at = epoch_ns + PERIOD_NS * 5 - 200000; !is_over; at += PERIOD_NS * 10) {
		sleep_until(at);
		burn(HOLD_US);
	}
	return unused;
}

static void *raiser(void *unused)
{
	begin("raiser", 0, cpu);
	for (uint64_t at = epoch_ns + PERIOD_NS * 5 - 200000; !is_over; at += PERIOD_NS * 10) {
		sleep_until(at);
		set_priority(80);
		burn(HOLD_US);
		set_priority(0);
	}
	return unused;
}

/* Takes the mutex as a nice-0 thread; `waiter` waits for it on the other CPU, so that it is boosted. */
static void *owner(void *unused)
{
	begin("owner", 0, is("owner") ? !cpu : cpu);
	for (uint64_t at = epoch_ns + PERIOD_NS * 5 - 1000000; !is_over; at += PERIOD_NS * 10) {
		sleep_until(at);
		pthread_mutex_lock(&inherit);
		turn++;
		burn(HOLD_US + 1000);
		pthread_mutex_unlock(&inherit);
	}
	return unused;
}

static void *waiter(void *unused)
{
	begin("waiter", 90, !cpu);
	for (int seen = 0; !is_over;) {
		while (turn == seen && !is_over)
			usleep(100);
		seen = turn;
		pthread_mutex_lock(&inherit);
		pthread_mutex_unlock(&inherit);
	}
	return unused;
}

static void *mapper(void *unused)
{
	const size_t bytes = 512ul << 20;

	begin("mapper", 0, !cpu);
	while (!is_over) {
		void *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

		if (memory != MAP_FAILED)
			munmap(memory, bytes);
		usleep(20000);
	}
	return unused;
}

static void *other(void *unused)
{
	uint64_t at = now_ns();

	begin("other", 40, !cpu);
	while (!is_over) {
		sleep_until(at += PERIOD_NS);
		burn(5);
	}
	return unused;
}

/* A chain of multiplications of about that length. */
__attribute__((noinline)) static void replan(uint64_t us)
{
	uint64_t now = value;

	for (uint64_t left = steps_per_ms * us / 1000; left; left--)
		now = now * 2862933555777941757ull + 3;
	value = now;
}

__attribute__((noinline)) static void filter(void)
{
	uint64_t now = value;

	for (uint64_t left = steps_per_ms / 5; left; left--)
		now = now * 6364136223846793005ull + 1;
	value = now;
}

__attribute__((noinline)) static void controller_update(int is_late)
{
	filter();
	if (is_late)
		replan(HOLD_US);
	value++;
}

static void calibrate(void)
{
	uint64_t best = ~0ull;

	for (int nth = 0; nth < 5; nth++) {
		uint64_t from = now_ns();

		steps_per_ms = 1000000;
		replan(1000);
		if (now_ns() - from < best)
			best = now_ns() - from;
	}
	steps_per_ms = 1000000ull * 1000000 / best;
}

static void *holder(void *unused)
{
	begin("holder", 0, !cpu);
	for (uint64_t at = epoch_ns + PERIOD_NS * 5 - 1000000; !is_over; at += PERIOD_NS * 10) {
		sleep_until(at);
		pthread_mutex_lock(&plain);
		burn(HOLD_US + 1000);
		pthread_mutex_unlock(&plain);
	}
	return unused;
}

static void *reader(void *unused)
{
	static char text[65536];

	begin("reader", 0, !cpu);
	for (uint64_t at = epoch_ns + PERIOD_NS * 5 + 5000000;; at += PERIOD_NS * 10) {
		sleep_until(at);
		if (read(log_pipe[0], text, sizeof(text)) < 0)
			return unused;
	}
}

static void *server(void *unused)
{
	begin("server", 0, !cpu);
	for (;;) {
		struct sockaddr_in from;
		socklen_t length = sizeof(from);
		long text;

		if (recvfrom(server_socket, &text, sizeof(text), 0, (void *)&from, &length) < 0)
			return unused;
		burn(text);
		sendto(server_socket, &text, sizeof(text), 0, (void *)&from, length);
	}
}

static void *hog(void *unused)
{
	begin("hog", is("throttle") ? 40 : 0, is("throttle") ? cpu : !cpu);
	while (!is_over)
		burn(1000);
	return unused;
}

static void *starved(void *unused)
{
	begin("starved", 0, cpu);
	while (!is_over)
		burn(1000);
	return unused;
}

static void hold_file(void)
{
	int file = open("/tmp/whylate-classes.lock", O_RDWR | O_CREAT, 0600);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	begin("holder", 0, !cpu);
	for (uint64_t at = epoch_ns + PERIOD_NS * 5 - 1000000;; at += PERIOD_NS * 10) {
		sleep_until(at);
		flock(file, LOCK_EX);
		burn(HOLD_US + 1000);
		flock(file, LOCK_UN);
	}
}

static void write_to(const char *path, const char *text)
{
	int file = open(path, O_WRONLY);

	if (file < 0 || write(file, text, strlen(text)) < 0)
		fail(path);
	close(file);
}

/* A cgroup (v1 or v2) with 30 ms of runtime in each 100 ms. */
static void enter_group(void)
{
	char path[256], text[32];
	int is_v2 = !access("/sys/fs/cgroup/cgroup.controllers", F_OK);

	snprintf(group, sizeof(group), "/sys/fs/cgroup%s/classes-%d", is_v2 ? "" : "/cpu", getpid());
	if (mkdir(group, 0755))
		fail(group);
	snprintf(text, sizeof(text), "%d", getpid());
	if (is_v2) {
		snprintf(path, sizeof(path), "%s/cpu.max", group);
		write_to(path, "30000 100000");
	} else {
		snprintf(path, sizeof(path), "%s/cpu.cfs_quota_us", group);
		write_to(path, "30000");
	}
	snprintf(path, sizeof(path), "%s/cgroup.procs", group);
	write_to(path, text);
}

static void leave_group(void)
{
	char path[256], text[32];

	snprintf(path, sizeof(path), "/sys/fs/cgroup%s/cgroup.procs", access("/sys/fs/cgroup/cgroup.controllers", F_OK) ? "/cpu" : "");
	snprintf(text, sizeof(text), "%d", getpid());
	write_to(path, text);
	rmdir(group);
}

struct attributes {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
};

static void *control(void *unused)
{
	static char lines[6500];

	control_id = syscall(SYS_gettid);
	if (is("deadline")) {
		struct attributes wanted = { sizeof(wanted), 6 /* SCHED_DEADLINE */, 0, 0, 0, 3000000, PERIOD_NS, PERIOD_NS };

		prctl(PR_SET_NAME, "control");
		if (syscall(SYS_sched_setattr, 0, &wanted, 0))
			fail("sched_setattr");
	} else {
		begin("control", is("quota") ? 0 : 50, cpu);
	}
	for (int nth = 0; nth < cycles; nth++) {
		uint64_t due = epoch_ns + nth * PERIOD_NS;
		int is_late = nth % 10 == 5;

		sleep_until(due);
		burn(200);
		if (is("own") || is("many") || is("deadline"))
			burn(is_late ? HOLD_US : 0);
		if (is("plan"))
			controller_update(is_late);
		if (is("trim") && is_late) {
			void *blocks[128];

			for (int block = 0; block < 128; block++)
				memset(blocks[block] = malloc(65536), 1, 65536);
			for (int block = 0; block < 128; block++)
				free(blocks[block]);
			malloc_trim(0);
		}
		if (is("mutex")) {
			pthread_mutex_lock(&plain);
			pthread_mutex_unlock(&plain);
		}
		/* The pipe holds 64 KiB, so that the write after about ten cycles waits for `reader`. */
		if (is("log") && write(log_pipe[1], lines, sizeof(lines)) < 0)
			fail("write");
		if (is("owner")) {
			pthread_mutex_lock(&inherit);
			pthread_mutex_unlock(&inherit);
		}
		if (is("faults") && is_late) {
			const size_t bytes = 2048 * 4096;
			char *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

			madvise(memory, bytes, MADV_NOHUGEPAGE);
			for (size_t at = 0; at < bytes; at += 4096)
				memory[at] = 1;
			munmap(memory, bytes);
		}
		if (is("map"))
			munmap(mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096);
		if (is("flock")) {
			flock(lock_file, LOCK_EX);
			flock(lock_file, LOCK_UN);
		}
		if (is("datagram")) {
			long text = is_late ? HOLD_US : 0;

			sendto(client_socket, &text, sizeof(text), 0, (void *)&server_address, sizeof(server_address));
			if (recv(client_socket, &text, sizeof(text), 0) < 0)
				fail("recv");
		}
		burn(50);
		took_ns[nth] = now_ns() - due;
	}
	return unused;
}

int main(int count, char **words)
{
	pthread_mutexattr_t attributes;
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof(server_address);
	pid_t child = 0;

	if (count != 4)
		return 2;
	kind = words[1];
	cycles = atoi(words[2]);
	cpu = atoi(words[3]);
	if (cycles > CYCLES_MAX)
		return 2;
	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
	pthread_mutex_init(&inherit, &attributes);
	lock_file = open("/tmp/whylate-classes.lock", O_RDWR | O_CREAT, 0600);
	calibrate();
	mallopt(M_MMAP_THRESHOLD, 1 << 30);
	epoch_ns = now_ns() + 500000000;
	if (is("quota"))
		enter_group();
	if (is("thief"))
		start(thief);
	if (is("raiser"))
		start(raiser);
	if (is("boosted") || is("owner"))
		start(owner);
	if (is("boosted"))
		start(waiter);
	if (is("map"))
		start(mapper);
	if (is("mutex"))
		start(holder);
	if (pipe(log_pipe))
		fail("pipe");
	if (is("log"))
		start(reader);
	if (is("quota") || is("throttle"))
		start(hog);
	if (is("throttle"))
		start(starved);
	if (is("flock") && !(child = fork()))
		hold_file();
	for (int nth = 0; is("many") && nth < 200; nth++)
		start(other);
	if (is("datagram")) {
		server_socket = socket(AF_INET, SOCK_DGRAM, 0);
		client_socket = socket(AF_INET, SOCK_DGRAM, 0);
		if (bind(server_socket, (void *)&any, sizeof(any)) || getsockname(server_socket, (void *)&server_address, &length))
			fail("bind");
		start(server);
	}
	pthread_join(start(control), 0);
	is_over = 1;
	printf("%d %d", control_id, cycles);
	for (int nth = 0; nth < cycles; nth++)
		printf(" %llu", (unsigned long long)took_ns[nth]);
	puts("\ndone");
	fflush(stdout);
	if (is("quota"))
		leave_group();
	if (child > 0)
		kill(child, SIGKILL);
	/* Threads stay until the watch has ended: it reads what is known of them. */
	sleep(1);
	_exit(0);
}
