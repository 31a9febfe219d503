/* Prints the rate of the C library's memcpy for each size of a block, measured as crates/copy/examples/rates.rs does. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TRIALS 15

static uint64_t now(void)
{
	struct timespec t;

	/* Others may have the CPU in the middle of a trial. */
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double trial(char *to, const char *from, size_t bytes)
{
	uint64_t begin = now(), copied = 0, turns = 1, most = (1 << 20) / bytes + 1;

	while (now() - begin < 1000000) {
		for (uint64_t i = 0; i < turns; i++) {
			memcpy(to, from, bytes);
			__asm__ volatile("" : : "r"(to), "r"(from) : "memory");
		}
		copied += turns * bytes;
		turns = turns * 2 < most ? turns * 2 : most;
	}
	return (double)copied / (now() - begin);
}

int main(int count, char **words)
{
	double rates[64][TRIALS];
	size_t most = 0;
	char *from, *to;

	for (int i = 1; i < count; i++)
		if (strtoull(words[i], 0, 0) > most)
			most = strtoull(words[i], 0, 0);
	from = aligned_alloc(4096, (most + 4095) / 4096 * 4096);
	/* Half a page apart: stores to the same place of a page as the loads behind them would delay those. */
	to = (char *)aligned_alloc(4096, (most + 8191) / 4096 * 4096) + 2048;
	memset(from, 1, most);
	memset(to, 2, most);
	for (int t = 0; t < TRIALS; t++)
		for (int i = 1; i < count; i++)
			rates[i][t] = trial(to, from, strtoull(words[i], 0, 0));
	for (int i = 1; i < count; i++) {
		qsort(rates[i], TRIALS, sizeof(double), by_size);
		printf("glibc %s %.3f\n", words[i], rates[i][TRIALS / 2]);
	}
	return 0;
}
