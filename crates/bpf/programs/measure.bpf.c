/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Measures probe packets by CPU, sender and flow: counts, sequence numbers, inter-arrival times, jitter and latency in
 * log-linear histograms, and takes the packets away or sends them back to those who agreed to it. All other packets go
 * to the kernel. There are two banks of everything: while one is read and cleared, the other is filled.
 */
#include "linerate.bpf.h"

#define WINDOW 256
#define JUMP (1 << 20)
#define NEIGHBOURS 64
#define SENDERS 64
#define FLOWS 256
#define PROBES 4 /* places that are tried */
#define BUCKETS 4096
#define LINEAR 256 /* values with a bucket each; every power of two above has half as many */
#define SECONDS_1987 (1 << 29)

/*
 * Gaps since the packet before at this reader that was of the same flow, was of another one, and since the packet before
 * of this flow with others between: the first is of both kinds of inter-arrival times, and recorded once.
 */
enum kind { GAP, READER_GAP, FLOW_GAP, JITTER, LATENCY, KINDS };
enum probe_clock { BY_NUMBERS, MICROS, NANOS };

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

struct reader {
	__u64 packets;
	__u64 foreign;
	__u64 payload_bytes;
	__u64 frame_bytes;
	__u64 first_ns;
	__u64 last_ns;
	__u64 beyond_tables;
	__u64 before_sent;
	__u64 sent_by_uptime;
	__u64 returned;
	__u64 last_flow; /* its place, plus 1; 0: of no flow in the table */
	struct sums sums[KINDS];
};
_Static_assert(sizeof(struct reader) == 11 * 8 + 5 * 64, "read by measure.rs");

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

struct flow {
	__u64 source[2];
	__u64 destination[2];
	__u64 tag; /* ports, stream and version: see tag_of() */
	__u64 sender; /* its place */
	__u64 packets;
	__u64 payload_bytes;
	__u64 first_ns;
	__u64 last_ns;
	__u64 longest_gap_ns;
};
_Static_assert(sizeof(struct flow) == 11 * 8, "read by measure.rs");

struct settings {
	__u64 wall_ahead_ns; /* CLOCK_REALTIME - CLOCK_MONOTONIC */
	__u64 bank; /* and the flags below */
};

/* To find out what a packet costs, the same frame comes many times: its numbers count up, and its times differ. */
#define TRIAL 2
#define TRIAL_APART 4

const volatile __u32 queues = 1; /* set by the loader, as the map's length is */
const volatile __u32 verdict = XDP_DROP;
const volatile __u32 is_timed = 1;
const volatile __u32 probe_clock = BY_NUMBERS;
const volatile __u32 may_return = 0; /* whether probes go back to the addresses in `returns` */
const volatile __u32 return_by_redirect = 0; /* to the interface they came in at, instead of XDP_TX */
const volatile __u32 work_ns = 0; /* that a probe keeps us busy */
const volatile __u32 by_poll = 0; /* look at the clock once a poll of the device */
const volatile __u32 is_scripted = 0; /* for tests: the time of arrival stands behind the tag */

struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	TYPE(key, __u32);
	TYPE(value, struct settings);
	NUMBER(max_entries, 1);
} settings SEC(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	TYPE(key, __u32);
	TYPE(value, struct reader);
	NUMBER(max_entries, 2);
} readers SEC(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	TYPE(key, __u32);
	TYPE(value, struct sender);
	NUMBER(max_entries, 2 * SENDERS);
} senders SEC(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	TYPE(key, __u32);
	TYPE(value, struct flow);
	NUMBER(max_entries, 2 * FLOWS);
} flows SEC(".maps");

struct counts {
	__u64 bucket[BUCKETS];
};

struct {
	NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	TYPE(key, __u32);
	TYPE(value, struct counts);
	NUMBER(max_entries, 2 * KINDS);
} histograms SEC(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	TYPE(key, __u32);
	TYPE(value, struct queue);
	NUMBER(max_entries, 2); /* twice as many as there are queues */
} by_queue SEC(".maps");

struct ends {
	__u64 source[2];
	__u64 destination[2];
};

/*
 * With one time a poll, packets of a batch differ in nothing but their numbers: each has the time of sending and of arrival
 * of the one before, so all their gaps and jitters are 0 and their latency is the same. They are only counted here;
 * settle_run() adds them up when another packet comes, and at the end of the poll.
 */
struct run {
	__u64 poll_ns; /* the time of the current poll, 0 when it has just begun */
	__u64 repeats;
	__u64 now;
	__u64 raw;
	__u64 tag; /* 0: there is no packet before, or none that may be repeated */
	struct ends ends;
	__u64 lengths; /* of the frame and the payload */
	__u64 words[6]; /* of a plain frame; the first is NOT_PLAIN for others */
	__u32 next; /* number */
	__u32 queue;
	__u32 bank;
	__u32 sender; /* places */
	__u32 flow;
	__u32 is_by_uptime;
	__u64 sent; /* 0: not known */
};

struct {
	NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	TYPE(key, __u32);
	TYPE(value, struct run);
	NUMBER(max_entries, 1);
} runs SEC(".maps");

/* 1 + the binary logarithm, 0 for 0. */
#define TIMES4(n) n, n, n, n
#define TIMES16(n) TIMES4(n), TIMES4(n), TIMES4(n), TIMES4(n)
#define TIMES64(n) TIMES16(n), TIMES16(n), TIMES16(n), TIMES16(n)
static const volatile __u8 bits[256] = {
	0, 1, 2, 2, TIMES4(3), TIMES4(4), TIMES4(4), TIMES16(5), TIMES16(6), TIMES16(6), TIMES64(7), TIMES64(8), TIMES64(8),
};

struct returns_key {
	__u64 address[2];
	__u64 is_ipv6;
};
_Static_assert(sizeof(struct returns_key) == 24, "written by returns.rs");

struct {
	NUMBER(type, BPF_MAP_TYPE_HASH);
	TYPE(key, struct returns_key);
	TYPE(value, __u32);
	NUMBER(max_entries, 256);
} returns SEC(".maps");

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

static ALWAYS_INLINE void record_n(struct reader *reader, __u32 bank, enum kind kind, __u64 value, __u32 times)
{
	struct sums *sums = &reader->sums[kind];
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

static ALWAYS_INLINE void record(struct reader *reader, __u32 bank, enum kind kind, __u64 value)
{
	record_n(reader, bank, kind, value, 1);
}

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

/* Functions that are not static are verified once, by themselves: the hot path alone is little for the verifier. */
static ALWAYS_INLINE __u64 mix(__u64 a, __u64 b)
{
	a = (a ^ b >> 29 ^ b << 35) * 0x9e3779b97f4a7c15ULL;
	return a ^ a >> 32;
}

/* Of a packet, besides its addresses: ports, stream, version, and a bit that no free place has. */
static ALWAYS_INLINE __u64 tag_of(struct udp *udp, __u32 stream, __u32 is_ipv6)
{
	__u64 ports = (__u64)ntohs(udp->source) << 16 | ntohs(udp->dest);

	return ports | (__u64)stream << 32 | (__u64)is_ipv6 << 48 | 1ULL << 63;
}

#define STREAM_OF(tag) ((tag) >> 32 & 0xffff)
#define IS_IPV6(tag) ((tag) >> 48 & 1)

/* Its place, or -1 when there is no room. */
__attribute__((noinline)) int find_sender(__u32 bank, struct ends *ends, __u64 tag)
{
	__u64 hash;

	if (!ends)
		return -1;
	hash = mix(ends->source[0] ^ ends->source[1] * 31, STREAM_OF(tag));
#pragma clang loop unroll(disable)
	for (__u32 tried = 0; tried < PROBES; tried++) {
		__u32 place = (hash + tried) % SENDERS, key = (bank & 1) * SENDERS + place;
		struct sender *sender = bpf_map_lookup_elem(&senders, &key);

		if (!sender)
			return -1;
		if (sender->packets == 0) {
			sender->address[0] = ends->source[0];
			sender->address[1] = ends->source[1];
			sender->stream = STREAM_OF(tag);
			sender->is_ipv6 = IS_IPV6(tag);
			return place;
		}
		if (sender->address[0] == ends->source[0] && sender->address[1] == ends->source[1] &&
		    sender->stream == STREAM_OF(tag))
			return place;
	}
	return -1;
}

static ALWAYS_INLINE int is_of(struct flow *flow, struct ends *ends, __u64 tag)
{
	return flow->tag == tag && flow->source[0] == ends->source[0] && flow->destination[0] == ends->destination[0] &&
	       flow->source[1] == ends->source[1] && flow->destination[1] == ends->destination[1];
}

/* Its place, or -1 when there is no room. */
__attribute__((noinline)) int find_flow(__u32 bank, struct ends *ends, __u64 tag, __u32 sender)
{
	__u64 hash;

	if (!ends)
		return -1;
	hash = mix(mix(ends->source[0] ^ ends->source[1] * 31, ends->destination[0] ^ ends->destination[1] * 37), tag);
#pragma clang loop unroll(disable)
	for (__u32 tried = 0; tried < PROBES; tried++) {
		__u32 place = (hash + tried) % FLOWS, key = (bank & 1) * FLOWS + place;
		struct flow *flow = bpf_map_lookup_elem(&flows, &key);

		if (!flow)
			return -1;
		if (flow->packets == 0) {
			flow->source[0] = ends->source[0];
			flow->source[1] = ends->source[1];
			flow->destination[0] = ends->destination[0];
			flow->destination[1] = ends->destination[1];
			flow->tag = tag;
			flow->sender = sender;
			return place;
		}
		if (is_of(flow, ends, tag))
			return place;
	}
	return -1;
}

/* Nanoseconds on the monotonic clock; 0 when the header does not say. */
static ALWAYS_INLINE __u64 sent_ns(__u64 raw, struct settings *now, struct reader *reader)
{
	__u64 seconds = raw >> 32, micros = raw & 0xffffffff;

	if (!raw) {
		reader->sent_by_uptime++;
		return 0;
	}
	if (probe_clock == MICROS || (probe_clock == BY_NUMBERS && seconds >= SECONDS_1987 && micros < 1000000))
		return seconds * 1000000000 + micros * 1000 - now->wall_ahead_ns;
	reader->sent_by_uptime++;
	return raw;
}

struct packet {
	__u64 tag;
	__u64 raw;
	__u64 now;
	__u32 number;
	__u32 payload_len;
};

static ALWAYS_INLINE struct flow *flow_at(__u32 bank, __u32 place)
{
	__u32 key = bank * FLOWS + (place % FLOWS);

	return bpf_map_lookup_elem(&flows, &key);
}

static ALWAYS_INLINE struct sender *sender_at(__u32 bank, __u32 place)
{
	__u32 key = bank * SENDERS + (place % SENDERS);

	return bpf_map_lookup_elem(&senders, &key);
}

/* A packet like the one before may follow when that one has its sender, its flow and its number where they belong. */
static ALWAYS_INLINE void observe(struct reader *reader, struct settings *setting, struct ends *ends,
				  struct packet *packet, struct run *run)
{
	__u64 raw = packet->raw, now = packet->now, transit = 0, apart, gap = now - reader->last_ns;
	__u64 by_uptime = reader->sent_by_uptime, sent = sent_ns(raw, setting, reader);
	__u32 bank = setting->bank & 1, number = packet->number;
	struct flow *flow = 0;
	struct sender *sender;
	int place = -1, is_same = 0;

	if (reader->last_flow)
		flow = flow_at(bank, reader->last_flow - 1);
	if (flow && is_of(flow, ends, packet->tag)) {
		is_same = 1;
		place = flow->sender;
	} else {
		flow = 0;
		reader->last_flow = 0;
		place = find_sender(bank, ends, packet->tag);
		if (place >= 0) {
			int at = find_flow(bank, ends, packet->tag, place);

			if (at >= 0) {
				flow = flow_at(bank, at);
				reader->last_flow = at + 1;
			}
		}
	}

	if (UNLIKELY(!reader->first_ns))
		reader->first_ns = now;
	else if (is_timed)
		record(reader, bank, is_same ? GAP : READER_GAP, gap);
	reader->last_ns = now;
	if (is_timed && sent) {
		transit = now - sent;
		if ((__s64)transit >= 0)
			record(reader, bank, LATENCY, transit);
		else
			reader->before_sent++;
	}
	if (UNLIKELY(place < 0)) {
		reader->beyond_tables++;
		return;
	}

	sender = sender_at(bank, place);
	if (!sender)
		return;
	if (number == sender->next && sender->packets)
		sender->next++;
	else if (!sender->packets)
		begin(sender, number, raw, now);
	else
		place_of(sender, number, raw, now);
	sender->packets++;
	sender->payload_bytes += packet->payload_len;
	sender->send_times += sender->last_raw != raw;
	sender->last_raw = raw;
	sender->last_ns = now;
	if (is_timed && sent) {
		if (sender->has_transit) {
			apart = transit - sender->last_transit;
			if ((__s64)apart < 0)
				apart = -apart;
			record(reader, bank, JITTER, apart);
			sender->jitter_scaled += apart - ((sender->jitter_scaled + 8) >> 4);
		}
		sender->has_transit = 1;
		sender->last_transit = transit;
	}

	if (UNLIKELY(!flow)) {
		reader->beyond_tables++;
		return;
	}
	if (!is_same && flow->packets) {
		gap = now - flow->last_ns;
		if (is_timed)
			record(reader, bank, FLOW_GAP, gap);
	}
	if (UNLIKELY(!flow->packets))
		flow->first_ns = now;
	else if (gap > flow->longest_gap_ns)
		flow->longest_gap_ns = gap;
	flow->packets++;
	flow->payload_bytes += packet->payload_len;
	flow->last_ns = now;
	if (!run || sender->next != number + 1)
		return;
	run->tag = packet->tag;
	run->sender = place;
	run->flow = reader->last_flow - 1;
	run->sent = sent;
	run->is_by_uptime = reader->sent_by_uptime != by_uptime;
}

/* The packets that were like the one before. */
__attribute__((noinline)) int settle_run(struct run *run)
{
	__u32 bank, times, jitter_of = 1 << 10;
	struct sender *sender;
	struct reader *reader;
	struct queue *queue;
	__u64 bytes, frame_bytes;
	struct flow *flow;

	if (!run)
		return 0;
	times = run->repeats;
	run->repeats = 0;
	bank = run->bank & 1;
	reader = bpf_map_lookup_elem(&readers, &bank);
	sender = sender_at(bank, run->sender);
	flow = flow_at(bank, run->flow);
	if (!reader || !sender || !flow)
		return 0;
	bytes = (run->lengths & 0xffffffff) * times;
	reader->packets += times;
	reader->payload_bytes += bytes;
	frame_bytes = (run->lengths >> 32) * times;
	reader->frame_bytes += frame_bytes;
	if (run->is_by_uptime)
		reader->sent_by_uptime += times;
	bank = 2 * run->queue + (run->bank & 1);
	queue = bpf_map_lookup_elem(&by_queue, &bank);
	if (queue) {
		queue->packets += times;
		queue->payload_bytes += bytes;
		queue->frame_bytes += frame_bytes;
	}
	bank = run->bank & 1;
	sender->packets += times;
	sender->payload_bytes += bytes;
	sender->next += times;
	flow->packets += times;
	flow->payload_bytes += bytes;
	if (!is_timed)
		return 0;
	record_n(reader, bank, GAP, 0, times);
	if (!run->sent)
		return 0;
	record_n(reader, bank, JITTER, 0, times);
	if ((__s64)(run->now - run->sent) >= 0)
		record_n(reader, bank, LATENCY, run->now - run->sent, times);
	else
		reader->before_sent += times;
	/* Below 8 it stays; from 2^64 it is there long before the loop ends. */
	if (times < jitter_of)
		jitter_of = times;
#pragma clang loop unroll(disable)
	for (__u32 packet = 0; packet < jitter_of; packet++) {
		if (sender->jitter_scaled < 8)
			break;
		sender->jitter_scaled -= (sender->jitter_scaled + 8) >> 4;
	}
	return 0;
}

/*
 * A frame with plain headers (IPv4 without tags and options) from its EtherType to the end of the stream tag: all that tells
 * packets of a run apart from others but their numbers, and all that must be looked at. As wire::Likeness in user space:
 * without the type of service, the identification, the TTL and the checksums.
 */
#define WORDS_AT 12
#define NUMBER_AT 46
#define PLAIN_LEN (WORDS_AT + 6 * 8)
#define NOT_PLAIN (~0ULL)
#define WORD0 0x0000ffff00ffffffULL
#define WORD1 0xffff0000ff00ffffULL
#define WORD3 0xffff0000ffffffffULL
#define WORD4 0xffff00000000ffffULL

static ALWAYS_INLINE void remember_words(struct run *run, void *data, void *end)
{
	__u64 *words = data + WORDS_AT;

	run->words[0] = NOT_PLAIN;
	if (data + PLAIN_LEN > end || (words[0] & 0xffffff) != (0x450000 | htons(ETHERTYPE_IPV4)))
		return;
	run->words[0] = words[0] & WORD0;
	run->words[1] = words[1] & WORD1;
	run->words[2] = words[2];
	run->words[3] = words[3] & WORD3;
	run->words[4] = words[4] & WORD4;
	run->words[5] = words[5];
}

/* Whether a frame is seen at once to continue the run. */
static ALWAYS_INLINE int continues(struct run *run, void *data, void *end)
{
	__u64 *words = data + WORDS_AT;

	return run->tag && data + PLAIN_LEN <= end && (words[0] & WORD0) == run->words[0] &&
	       (words[1] & WORD1) == run->words[1] && words[2] == run->words[2] &&
	       (words[3] & WORD3) == run->words[3] && (words[4] & WORD4) == run->words[4] &&
	       words[5] == run->words[5] && *(__u32 *)(data + NUMBER_AT) == htonl(run->next) &&
	       end - data + FCS_LEN == run->lengths >> 32;
}

/* Whether it also came with the others. */
static ALWAYS_INLINE int is_together(struct run *run, void *data, void *end)
{
	__u64 *scripted = data + PLAIN_LEN;

	if (!is_scripted)
		return run->poll_ns == run->now;
	return (void *)(scripted + 1) <= end && __builtin_bswap64(*scripted) == run->now;
}

static ALWAYS_INLINE int is_like_before(struct run *run, struct ends *ends, struct packet *packet)
{
	return packet->number == run->next && packet->now == run->now && packet->raw == run->raw &&
	       packet->tag == run->tag && ends->source[0] == run->ends.source[0] &&
	       ends->destination[0] == run->ends.destination[0] && ends->source[1] == run->ends.source[1] &&
	       ends->destination[1] == run->ends.destination[1];
}

static ALWAYS_INLINE void swap16(__u16 *a, __u16 *b)
{
	__u16 was = *a;

	*a = *b;
	*b = was;
}

static ALWAYS_INLINE void swap32(__u32 *a, __u32 *b)
{
	__u32 was = *a;

	*a = *b;
	*b = was;
}

/*
 * A veth's packets may have a checksum that a card was to complete: so far that of the pseudo header alone. IPv4 may do
 * without one.
 */
static ALWAYS_INLINE void drop_unfinished_checksum(__u8 *ip, struct udp *udp)
{
	__u32 sum = htons(PROTOCOL_UDP) + udp->len;

#pragma unroll
	for (int half = 12; half < 20; half += 2)
		sum += *(__u16 *)(ip + half);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	if (udp->check == sum)
		udp->check = 0;
}

/* As wire::turn_frame_back: everything changes places, so that no checksum changes. */
static ALWAYS_INLINE int turn_back(__u32 interface, __u16 *mac, __u8 *ip, struct udp *udp, struct probe *probe, void *end)
{
	if ((ip[0] >> 4) == 6) {
		if ((void *)(ip + IPV6_LEN) > end)
			return XDP_PASS;
		swap32((__u32 *)(ip + 8), (__u32 *)(ip + 24));
		swap32((__u32 *)(ip + 12), (__u32 *)(ip + 28));
		swap32((__u32 *)(ip + 16), (__u32 *)(ip + 32));
		swap32((__u32 *)(ip + 20), (__u32 *)(ip + 36));
	} else {
		drop_unfinished_checksum(ip, udp);
		swap32((__u32 *)(ip + 12), (__u32 *)(ip + 16));
	}
	swap16(&mac[0], &mac[3]);
	swap16(&mac[1], &mac[4]);
	swap16(&mac[2], &mac[5]);
	swap16(&udp->source, &udp->dest);
	probe->magic = htonl(PROBE_MAGIC << 16 | PROBE_MAGIC >> 16);
	/* A veth puts what XDP_TX sends into its peer's ring, but wakes only a peer with a program (veth_xdp_flush()). */
	return return_by_redirect ? bpf_redirect(interface, 0) : XDP_TX;
}

/* napi:napi_poll comes at the end of each poll. */
SEC("raw_tracepoint/napi_poll")
int measure_polled(void *ctx)
{
	__u32 zero = 0;
	struct run *run = bpf_map_lookup_elem(&runs, &zero);

	if (!run)
		return 0;
	run->poll_ns = 0;
	if (run->repeats)
		settle_run(run);
	return 0;
}

SEC("xdp.frags")
int measure(struct xdp_md *ctx)
{
	void *data = (void *)(__u64)ctx->data, *end = (void *)(__u64)ctx->data_end;
	__u32 zero = 0, bank, queue = ctx->rx_queue_index, frame_len, is_ipv6, fate = verdict;
	struct settings *setting = bpf_map_lookup_elem(&settings, &zero);
	struct packet packet;
	struct reader *reader;
	struct probe *probe = 0;
	struct run *run = 0;
	struct udp *udp;
	struct ends ends;
	struct queue *of_queue;
	__u64 *now, lengths;
	__u8 *ip;

	if (!setting)
		return XDP_PASS;
	bank = setting->bank & 1;
	if (by_poll) {
		run = bpf_map_lookup_elem(&runs, &zero);
		if (!run)
			return XDP_PASS;
	}
	if (run && !may_return && !work_ns && !(setting->bank & TRIAL_APART) && bank == run->bank &&
	    queue == run->queue && is_together(run, data, end) && continues(run, data, end)) {
		run->repeats++;
		run->next++;
		if (UNLIKELY(setting->bank & TRIAL))
			*(__u32 *)(data + NUMBER_AT) = htonl(run->next);
		return verdict;
	}
	udp = udp_behind(data, end, &ip);
	if (udp)
		probe = probe_of(udp, end);
	if (!probe) {
		reader = bpf_map_lookup_elem(&readers, &bank);
		if (reader)
			reader->foreign++;
		return XDP_PASS;
	}
	is_ipv6 = (ip[0] >> 4) == 6;
	if (is_ipv6) {
		if ((void *)(ip + IPV6_LEN) > end)
			return XDP_PASS;
		ends.source[0] = *(__u64 *)(ip + 8);
		ends.source[1] = *(__u64 *)(ip + 16);
		ends.destination[0] = *(__u64 *)(ip + 24);
		ends.destination[1] = *(__u64 *)(ip + 32);
	} else {
		if ((void *)(ip + IPV4_LEN) > end)
			return XDP_PASS;
		ends.source[0] = *(__u32 *)(ip + 12);
		ends.source[1] = 0;
		ends.destination[0] = *(__u32 *)(ip + 16);
		ends.destination[1] = 0;
	}
	if (run) {
		if (!run->poll_ns)
			run->poll_ns = bpf_ktime_get_ns();
		packet.now = run->poll_ns;
	} else {
		packet.now = bpf_ktime_get_ns();
	}
	if (is_scripted) {
		now = (__u64 *)((__u8 *)(probe + 1) + 2);
		if ((void *)(now + 1) > end)
			return XDP_PASS;
		packet.now = __builtin_bswap64(*now);
	}
	packet.tag = tag_of(udp, stream_of(udp, probe, end), is_ipv6);
	packet.raw = __builtin_bswap64(probe->time);
	packet.number = ntohl(probe->sequence);
	packet.payload_len = ntohs(udp->len) - UDP_LEN;
	frame_len = end - data + FCS_LEN;
	if (frame_len < LEAST_FRAME)
		frame_len = LEAST_FRAME;
	lengths = (__u64)frame_len << 32 | packet.payload_len;
	if (UNLIKELY(setting->bank & TRIAL)) {
		probe->sequence = htonl(packet.number + 1);
		if (setting->bank & TRIAL_APART)
			packet.raw -= packet.number % 1024;
	}
	if (work_ns && !(setting->bank & TRIAL))
		work(work_ns);
	if (run) {
		if (!may_return && is_like_before(run, &ends, &packet) && lengths == run->lengths &&
		    queue == run->queue && bank == run->bank) {
			run->repeats++;
			run->next++;
			return fate;
		}
		if (run->repeats)
			settle_run(run);
		run->now = packet.now;
		run->raw = packet.raw;
		run->tag = 0;
		run->ends = ends;
		run->lengths = lengths;
		remember_words(run, data, end);
		run->next = packet.number + 1;
		run->queue = queue;
		run->bank = bank;
	}
	reader = bpf_map_lookup_elem(&readers, &bank);
	if (!reader)
		return XDP_PASS;
	reader->packets++;
	reader->payload_bytes += packet.payload_len;
	reader->frame_bytes += frame_len;
	queue = 2 * queue + bank;
	of_queue = bpf_map_lookup_elem(&by_queue, &queue);
	if (of_queue) {
		of_queue->packets++;
		of_queue->payload_bytes += packet.payload_len;
		of_queue->frame_bytes += frame_len;
		if (!of_queue->first_ns)
			of_queue->first_ns = packet.now;
		of_queue->last_ns = packet.now;
	}
	if (may_return) {
		struct returns_key sender = { { ends.source[0], ends.source[1] }, is_ipv6 };

		/* Not what was sent to many. */
		if (!(*(__u8 *)data & 1) && bpf_map_lookup_elem(&returns, &sender)) {
			reader->returned++;
			fate = turn_back(ctx->ingress_ifindex, data, ip, udp, probe, end);
		}
	}
	observe(reader, setting, &ends, &packet, run);
	return fate;
}
