/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The numbers of one sender's packets, as measure::SequenceTracker distinguishes lost, late and duplicate ones.
 *
 * Functions that are not static are verified once, separately: the hot path alone is small for the verifier.
 */
#ifndef MEASURE_SEQUENCE_H
#define MEASURE_SEQUENCE_H

#include "linerate.bpf.h"

#define WINDOW 256
#define JUMP (1 << 20)
#define NEIGHBOURS 64

/* What one CPU saw of one sender. */
struct sender {
	__u64 address[2];
	__u64 stream;
	__u64 is_ipv6;
	__u64 packets;
	__u64 payload_bytes;
	__u64 send_times;
	__u64 last_raw;
	__u64 last_transit;
	__u64 has_transit;
	__u64 jitter_scaled; /* RFC 3550, A.8 */
	/* since the sender last started */
	__u64 first_ns;
	__u64 last_ns;
	__u64 first_raw;
	__u64 newest_raw;
	__u64 span;
	__u64 distinct;
	/* ever */
	__u64 restarts;
	__u64 distinct_before;
	__u64 lost_before;
	__u64 reordered;
	__u64 extent_sum;
	__u64 extent_max;
	__u64 duplicates;
	__u64 late;
	__u64 strays;
	__u32 next; /* the highest number, plus 1 */
	__u32 arrivals;
	__u32 stray; /* plus 1 */
	/*
	 * The numbers from here to `next` came in order and were only counted by that: settle() writes them down, into
	 * `span`, `distinct`, `arrivals` and the window, when something else comes.
	 */
	__u32 run;
	/* By place in the window, a number plus 1: the last that came, the last that was the highest, and when. */
	__u32 seen[WINDOW];
	__u32 risen[WINDOW];
	__u32 rose_at[WINDOW];
};
_Static_assert(sizeof(struct sender) == 26 * 8 + 16 + 3 * 4 * WINDOW, "read by measure.rs");

static ALWAYS_INLINE void write_down(struct sender *sender, __u32 number, __u32 arrival)
{
	sender->seen[number % WINDOW] = number + 1;
	sender->risen[number % WINDOW] = number + 1;
	sender->rose_at[number % WINDOW] = arrival;
}

static ALWAYS_INLINE void rise(struct sender *sender, __u32 number, __u64 raw)
{
	write_down(sender, number, sender->arrivals++);
	sender->next = number + 1;
	sender->run = number + 1;
	sender->newest_raw = raw;
	sender->distinct++;
}

/* Writes down what came in order; of more numbers than the window has room for, the last. */
static ALWAYS_INLINE void settle(struct sender *sender)
{
	__u32 count = sender->next - sender->run, skipped;

	if (!count)
		return;
	skipped = count > WINDOW ? count - WINDOW : 0;
#pragma clang loop unroll(disable)
	for (__u32 place = 0; place < WINDOW; place++) {
		if (place >= count - skipped)
			break;
		write_down(sender, sender->run + skipped + place, sender->arrivals + skipped + place);
	}
	sender->span += count;
	sender->distinct += count;
	sender->arrivals += count;
	sender->newest_raw = sender->last_raw;
	sender->run = sender->next;
}

__attribute__((noinline)) int begin(struct sender *sender, __u32 number, __u64 raw, __u64 now)
{
	if (!sender)
		return 0;
#pragma clang loop unroll(disable)
	for (__u32 place = 0; place < WINDOW; place++) {
		/* volatile: there is no memset to call here */
		*(volatile __u32 *)&sender->seen[place] = 0;
		*(volatile __u32 *)&sender->risen[place] = 0;
	}
	/* 0 would mean number 2^32 - 1, which belongs here. */
	sender->seen[WINDOW - 1] = 1;
	sender->risen[WINDOW - 1] = 1;
	sender->first_ns = now;
	sender->first_raw = raw;
	sender->span = 1;
	sender->distinct = 0;
	sender->arrivals = 0;
	sender->stray = 0;
	rise(sender, number, raw);
	return 0;
}

/* The packets from the first with a higher number on. */
static ALWAYS_INLINE __u32 extent(struct sender *sender, __u32 number)
{
	__u32 first = sender->arrivals;

#pragma clang loop unroll(disable)
	for (__u32 above = 1; above < WINDOW; above++) {
		__u32 other = number + above;

		if (sender->risen[other % WINDOW] == other + 1) {
			first = sender->rose_at[other % WINDOW];
			break;
		}
	}
	return sender->arrivals - first;
}

/* A packet with another number than the next; as measure::SequenceTracker does. */
__attribute__((noinline)) int place_of(struct sender *sender, __u32 number, __u64 raw, __u64 now)
{
	__u32 ahead, behind, stray, follows_stray, packets;

	if (!sender)
		return 0;
	settle(sender);
	ahead = number - sender->next;
	behind = -ahead;
	stray = sender->stray;
	sender->stray = 0;
	follows_stray = stray && number - (stray - 1) - 1 < NEIGHBOURS;
	if ((int)ahead > 0) {
		if (ahead > JUMP && !follows_stray) {
			sender->stray = number + 1;
			sender->strays++;
			return 0;
		}
		sender->span += (__u64)ahead + 1;
		rise(sender, number, raw);
		return 0;
	}
	if ((raw > sender->newest_raw && sender->newest_raw) ||
	    (behind > WINDOW && follows_stray && (raw < sender->first_raw || !raw))) {
		sender->restarts++;
		sender->distinct_before += sender->distinct;
		if (sender->span > sender->distinct)
			sender->lost_before += sender->span - sender->distinct;
		begin(sender, number, raw, now);
		return 0;
	}
	if (behind > WINDOW) {
		sender->arrivals++;
		sender->stray = number + 1;
		sender->late++;
		sender->distinct += behind <= sender->span;
		return 0;
	}
	if (sender->seen[number % WINDOW] == number + 1) {
		sender->arrivals++;
		sender->duplicates++;
		return 0;
	}
	sender->seen[number % WINDOW] = number + 1;
	if (behind > sender->span)
		sender->span = behind;
	sender->distinct++;
	sender->reordered++;
	packets = extent(sender, number);
	sender->arrivals++;
	sender->extent_sum += packets;
	if (packets > sender->extent_max)
		sender->extent_max = packets;
	return 0;
}

#endif
