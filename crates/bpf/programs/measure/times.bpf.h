/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Times: their sums, and how they are distributed. Values below 256 have a bucket each, every power of two above has 128, as
 * measure::Histogram has them.
 */
#ifndef MEASURE_TIMES_H
#define MEASURE_TIMES_H

#include "linerate.bpf.h"

#define BUCKETS 4096

/*
 * Gaps since the packet before at this reader that was of the same flow, was of another one, and since the packet before
 * of this flow with others between: the first is of both kinds of inter-arrival times, and recorded once.
 */
enum kind { GAP, READER_GAP, FLOW_GAP, JITTER, LATENCY, KINDS };

struct wide {
	__u64 low;
	__u64 high;
};

/* How many samples there are, the histogram says. */
struct sums {
	__u64 least_inverted; /* so that it grows from 0 */
	__u64 most;
	__u64 unused[2];
	struct wide sum;
	struct wide squares;
};
_Static_assert(sizeof(struct sums) == 64, "read by measure.rs");

struct counts {
	__u64 bucket[BUCKETS];
};

struct {
	NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	TYPE(key, __u32);
	TYPE(value, struct counts);
	NUMBER(max_entries, 2 * KINDS);
} histograms SEC(".maps");

/* 1 + the binary logarithm, 0 for 0. */
#define TIMES4(n) n, n, n, n
#define TIMES16(n) TIMES4(n), TIMES4(n), TIMES4(n), TIMES4(n)
#define TIMES64(n) TIMES16(n), TIMES16(n), TIMES16(n), TIMES16(n)
static const volatile __u8 bits[256] = {
	0, 1, 2, 2, TIMES4(3), TIMES4(4), TIMES4(4), TIMES16(5), TIMES16(6), TIMES16(6), TIMES64(7), TIMES64(8), TIMES64(8),
};

static ALWAYS_INLINE void add(struct wide *wide, __u64 value)
{
	wide->low += value;
	wide->high += wide->low < value;
}

static ALWAYS_INLINE void add_product(struct wide *wide, __u64 value, __u32 times)
{
	__u64 high = (value >> 32) * times;

	add(wide, (value & 0xffffffff) * times);
	add(wide, high << 32);
	wide->high += high >> 32;
}

static ALWAYS_INLINE void add_squares(struct wide *wide, __u64 value, __u32 times)
{
	__u64 high = value >> 32, low = value & 0xffffffff, middle = 2 * high * low;

	add_product(wide, low * low, times);
	if (UNLIKELY(high)) {
		struct wide product = {};

		add_product(&product, middle, times);
		add(wide, product.low << 32);
		wide->high += high * high * times + (product.high << 32 | product.low >> 32);
	}
}

/* The bucket that measure::Histogram has; all values from 2^38 on share the last. */
static ALWAYS_INLINE __u32 bucket_of(__u64 value)
{
	__u64 top;
	__u32 shift = 0;

	if (UNLIKELY(value >> 38))
		return BUCKETS - 1;
	if (value >> 24) {
		value >>= 16;
		shift = 16;
	}
	if (value >> 16) {
		value >>= 8;
		shift += 8;
	}
	top = value >> 8;
	/* Below 256, as clang sees and takes the mask away; the verifier of Linux 6.1 sees it only with the mask. */
	asm volatile("" : "+r"(top));
	top = bits[top & 255];
	return ((shift + top) << 7) + (value >> top);
}

static ALWAYS_INLINE void record_n(struct sums *all, __u32 bank, enum kind kind, __u64 value, __u32 times)
{
	struct sums *sums = &all[kind];
	__u32 key = bank * KINDS + kind;
	struct counts *counts = bpf_map_lookup_elem(&histograms, &key);

	if (!counts)
		return;
	counts->bucket[bucket_of(value) & (BUCKETS - 1)] += times;
	if (UNLIKELY(~value > sums->least_inverted))
		sums->least_inverted = ~value;
	if (UNLIKELY(value > sums->most))
		sums->most = value;
	add_product(&sums->sum, value, times);
	add_squares(&sums->squares, value, times);
}

static ALWAYS_INLINE void record(struct sums *all, __u32 bank, enum kind kind, __u64 value)
{
	record_n(all, bank, kind, value, 1);
}

#endif
