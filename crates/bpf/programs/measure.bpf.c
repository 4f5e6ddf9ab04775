/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Measures probe packets by CPU, sender and flow: counts, sequence numbers, inter-arrival times, jitter and latency in
 * log-linear histograms, and takes the packets away. All other packets go to the kernel. There are two banks of
 * everything: while one is read and cleared, the other is filled.
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
#define LEAST_FRAME 64
#define FCS_LEN 4
#define SECONDS_1987 (1 << 29)

enum kind { INTER_ARRIVAL, FLOW_INTER_ARRIVAL, JITTER, LATENCY, KINDS };
enum probe_clock { BY_NUMBERS, MICROS, NANOS };

struct wide {
	__u64 low;
	__u64 high;
};

struct sums {
	__u64 samples;
	__u64 least;
	__u64 most;
	__u64 unused;
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
	struct sums sums[KINDS];
};
_Static_assert(sizeof(struct reader) == 9 * 8 + 4 * 64, "read by measure.rs");

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
	__u32 unused;
	/* By place in the window, a number plus 1: the last that came, the last that was the highest, and when. */
	__u32 seen[WINDOW];
	__u32 risen[WINDOW];
	__u32 rose_at[WINDOW];
};
_Static_assert(sizeof(struct sender) == 26 * 8 + 16 + 3 * 4 * WINDOW, "read by measure.rs");

struct flow {
	__u64 key;
	__u64 source[2];
	__u64 destination[2];
	__u64 ports; /* source << 16 | destination */
	__u64 stream;
	__u64 is_ipv6;
	__u64 packets;
	__u64 payload_bytes;
	__u64 first_ns;
	__u64 last_ns;
	__u64 longest_gap_ns;
};
_Static_assert(sizeof(struct flow) == 13 * 8, "read by measure.rs");

struct settings {
	__u64 wall_ahead_ns; /* CLOCK_REALTIME - CLOCK_MONOTONIC */
	__u64 bank;
};

const volatile __u32 queues = 1; /* set by the loader, as the map's length is */
const volatile __u32 verdict = XDP_DROP;
const volatile __u32 is_timed = 1;
const volatile __u32 probe_clock = BY_NUMBERS;
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
	TYPE(value, __u64);
	NUMBER(max_entries, 2); /* twice as many as there are queues */
} by_queue SEC(".maps");

static ALWAYS_INLINE void add(struct wide *wide, __u64 value)
{
	wide->low += value;
	wide->high += wide->low < value;
}

static ALWAYS_INLINE void add_square(struct wide *wide, __u64 value)
{
	__u64 high = value >> 32, low = value & 0xffffffff, middle = 2 * high * low;

	add(wide, low * low);
	if (UNLIKELY(high)) {
		add(wide, middle << 32);
		wide->high += high * high + (middle >> 32);
	}
}

/* The bucket that measure::Histogram has; all values from 2^38 on share the last. */
static ALWAYS_INLINE __u32 bucket_of(__u64 value)
{
	__u32 shift = 0, v;

	if (value < LINEAR)
		return value;
	if (value >> 38)
		return BUCKETS - 1;
	if (value >> 24) {
		value >>= 16;
		shift = 16;
	}
	v = value;
	if (v >> 16) {
		v >>= 8;
		shift += 8;
	}
	if (v >> 12) {
		v >>= 4;
		shift += 4;
	}
	if (v >> 10) {
		v >>= 2;
		shift += 2;
	}
	if (v >> 9) {
		v >>= 1;
		shift += 1;
	}
	if (v >> 8) {
		v >>= 1;
		shift += 1;
	}
	return (shift << 7) + v;
}

static ALWAYS_INLINE void record(struct reader *reader, __u32 bank, enum kind kind, __u64 value)
{
	struct sums *sums = &reader->sums[kind];
	__u32 key = bank * KINDS + kind;
	struct counts *counts = bpf_map_lookup_elem(&histograms, &key);

	if (!counts)
		return;
	counts->bucket[bucket_of(value) & (BUCKETS - 1)]++;
	if (UNLIKELY(!sums->samples) || value < sums->least)
		sums->least = value;
	if (value > sums->most)
		sums->most = value;
	sums->samples++;
	add(&sums->sum, value);
	add_square(&sums->squares, value);
}

static ALWAYS_INLINE void rise(struct sender *sender, __u32 number, __u64 raw)
{
	sender->seen[number % WINDOW] = number + 1;
	sender->risen[number % WINDOW] = number + 1;
	sender->rose_at[number % WINDOW] = sender->arrivals++;
	sender->next = number + 1;
	sender->newest_raw = raw;
	sender->distinct++;
}

static void begin(struct sender *sender, __u32 number, __u64 raw, __u64 now)
{
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
static __attribute__((noinline)) int place(struct sender *sender, __u32 number, __u64 raw, __u64 now)
{
	__u32 ahead, behind, stray, follows_stray, packets;

	if (!sender)
		return 0;
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

struct ends {
	__u64 source[2];
	__u64 destination[2];
	__u32 is_ipv6;
};

static ALWAYS_INLINE __u64 mix(__u64 a, __u64 b)
{
	a = (a ^ b >> 29 ^ b << 35) * 0x9e3779b97f4a7c15ULL;
	return a ^ a >> 32;
}

static ALWAYS_INLINE struct sender *find_sender(__u32 bank, struct ends *ends, __u32 stream)
{
	__u64 hash = mix(ends->source[0] ^ ends->source[1] * 31, stream);

#pragma unroll
	for (int tried = 0; tried < PROBES; tried++) {
		__u32 key = bank * SENDERS + ((hash + tried) % SENDERS);
		struct sender *sender = bpf_map_lookup_elem(&senders, &key);

		if (!sender)
			return 0;
		if (sender->packets == 0) {
			sender->address[0] = ends->source[0];
			sender->address[1] = ends->source[1];
			sender->stream = stream;
			sender->is_ipv6 = ends->is_ipv6;
			return sender;
		}
		if (sender->address[0] == ends->source[0] && sender->address[1] == ends->source[1] &&
		    sender->stream == stream)
			return sender;
	}
	return 0;
}

static ALWAYS_INLINE struct flow *find_flow(__u32 bank, struct ends *ends, __u64 ports, __u32 stream)
{
	__u64 key = mix(mix(ends->source[0] ^ ends->source[1] * 31, ends->destination[0] ^ ends->destination[1] * 37),
			ports << 16 | stream);

#pragma unroll
	for (int tried = 0; tried < PROBES; tried++) {
		__u32 place = bank * FLOWS + ((key + tried) % FLOWS);
		struct flow *flow = bpf_map_lookup_elem(&flows, &place);

		if (!flow)
			return 0;
		if (flow->packets == 0) {
			flow->key = key;
			flow->source[0] = ends->source[0];
			flow->source[1] = ends->source[1];
			flow->destination[0] = ends->destination[0];
			flow->destination[1] = ends->destination[1];
			flow->ports = ports;
			flow->stream = stream;
			flow->is_ipv6 = ends->is_ipv6;
			return flow;
		}
		if (flow->key == key)
			return flow;
	}
	return 0;
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

static ALWAYS_INLINE void observe(struct reader *reader, struct settings *setting, struct ends *ends, __u64 ports,
				  __u32 stream, struct probe *probe, __u32 payload_len, __u64 now)
{
	__u64 raw = __builtin_bswap64(probe->time), transit = 0, apart;
	__u64 sent = sent_ns(raw, setting, reader);
	__u32 bank = setting->bank & 1, number = ntohl(probe->sequence);
	struct sender *sender;
	struct flow *flow;

	if (UNLIKELY(!reader->first_ns))
		reader->first_ns = now;
	else if (is_timed)
		record(reader, bank, INTER_ARRIVAL, now - reader->last_ns);
	reader->last_ns = now;
	if (is_timed && sent) {
		transit = now - sent;
		if ((__s64)transit >= 0)
			record(reader, bank, LATENCY, transit);
		else
			reader->before_sent++;
	}

	sender = find_sender(bank, ends, stream);
	if (!sender) {
		reader->beyond_tables++;
		return;
	}
	if (UNLIKELY(!sender->packets))
		begin(sender, number, raw, now);
	else if (number == sender->next) {
		sender->span++;
		rise(sender, number, raw);
	} else
		place(sender, number, raw, now);
	sender->packets++;
	sender->payload_bytes += payload_len;
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

	flow = find_flow(bank, ends, ports, stream);
	if (!flow) {
		reader->beyond_tables++;
		return;
	}
	if (flow->packets) {
		apart = now - flow->last_ns;
		if (is_timed)
			record(reader, bank, FLOW_INTER_ARRIVAL, apart);
		if (apart > flow->longest_gap_ns)
			flow->longest_gap_ns = apart;
	} else {
		flow->first_ns = now;
	}
	flow->packets++;
	flow->payload_bytes += payload_len;
	flow->last_ns = now;
}

SEC("xdp.frags")
int measure(struct xdp_md *ctx)
{
	void *data = (void *)(__u64)ctx->data, *end = (void *)(__u64)ctx->data_end;
	__u32 zero = 0, bank, queue, frame_len, stream;
	struct settings *setting = bpf_map_lookup_elem(&settings, &zero);
	struct reader *reader;
	struct probe *probe = 0;
	struct udp *udp;
	struct ends ends;
	__u64 *packets, *now;
	__u8 *ip;

	if (!setting)
		return XDP_PASS;
	bank = setting->bank & 1;
	reader = bpf_map_lookup_elem(&readers, &bank);
	if (!reader)
		return XDP_PASS;
	udp = udp_behind(data, end, &ip);
	if (udp)
		probe = probe_of(udp, end);
	if (!probe) {
		reader->foreign++;
		return XDP_PASS;
	}
	stream = stream_of(udp, probe, end);
	ends.is_ipv6 = (ip[0] >> 4) == 6;
	if (ends.is_ipv6) {
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
	frame_len = end - data + FCS_LEN;
	reader->packets++;
	reader->payload_bytes += ntohs(udp->len) - UDP_LEN;
	reader->frame_bytes += frame_len < LEAST_FRAME ? LEAST_FRAME : frame_len;
	queue = 2 * ctx->rx_queue_index + bank;
	packets = bpf_map_lookup_elem(&by_queue, &queue);
	if (packets)
		(*packets)++;
	now = (__u64 *)((__u8 *)(probe + 1) + 2);
	if (is_scripted && (void *)(now + 1) > end)
		return XDP_PASS;
	observe(reader, setting, &ends, (__u64)ntohs(udp->source) << 16 | ntohs(udp->dest), stream, probe,
		ntohs(udp->len) - UDP_LEN, is_scripted ? __builtin_bswap64(*now) : bpf_ktime_get_ns());
	return verdict;
}
