// SPDX-License-Identifier: MIT OR Apache-2.0
// A thread `control` that works each 10 ms; in one of ten cycles Planner::replan takes 5 ms. See classes.c for what it prints.
//   own CYCLES CPU
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <algorithm>
#include <memory>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <thread>
#include <time.h>
#include <unistd.h>
#include <vector>

static uint64_t now_ns()
{
	timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static uint64_t rounds = 1000000;
static volatile uint64_t value;

struct Part {
	virtual ~Part() = default;
	virtual void update(int nth) = 0;
};

struct Filter : Part {
	void update(int) override
	{
		uint64_t now = value;
		for (uint64_t left = rounds / 25; left; left--)
			now = now * 6364136223846793005ull + 1;
		value = now;
	}
};

struct Planner : Part {
	[[gnu::noinline]] void replan()
	{
		uint64_t now = value;
		for (uint64_t left = rounds; left; left--)
			now = now * 2862933555777941757ull + 3;
		value = now;
	}
	void update(int nth) override
	{
		if (nth % 10 == 5)
			replan();
		value = value + 1;
	}
};

static void control(int cycles, int cpu)
{
	prctl(PR_SET_NAME, "control");
	cpu_set_t cpus;
	CPU_ZERO(&cpus);
	CPU_SET(cpu, &cpus);
	sched_setaffinity(0, sizeof(cpus), &cpus);
	sched_param parameter = { 50 };
	if (sched_setscheduler(0, SCHED_FIFO, &parameter))
		exit(1);
	std::vector<std::unique_ptr<Part>> parts;
	parts.push_back(std::make_unique<Filter>());
	parts.push_back(std::make_unique<Planner>());
	std::vector<uint64_t> took(cycles);
	uint64_t begin = now_ns() + 500000000;
	for (int nth = 0; nth < cycles; nth++) {
		uint64_t due = begin + nth * 10000000ull;
		timespec until = { time_t(due / 1000000000), long(due % 1000000000) };
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
		for (auto &part : parts)
			part->update(nth);
		took[nth] = now_ns() - due;
	}
	printf("%ld %d", syscall(SYS_gettid), cycles);
	for (uint64_t one : took)
		printf(" %lu", one);
	puts("\ndone");
	fflush(stdout);
}

int main(int, char **words)
{
	uint64_t best = ~0ull;
	for (int nth = 0; nth < 5; nth++) {
		uint64_t from = now_ns();
		Planner().replan();
		best = std::min(best, now_ns() - from);
	}
	rounds = rounds * 5000000 / best;
	std::thread(control, atoi(words[1]), atoi(words[2])).join();
	sleep(1);
	_exit(0);
}
