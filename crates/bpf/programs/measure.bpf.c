/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Measures probe packets by CPU, sender and flow: counts, sequence numbers, inter-arrival times, jitter and latency in
 * log-linear histograms, and consumes the packets or returns them to senders that agreed to it. All other packets go
 * to the kernel. Everything has two banks: while one is read and cleared, the other is filled.
 */
#include "linerate.bpf.h"
#include "measure/back.bpf.h"
#include "measure/run.bpf.h"
#include "measure/sequence.bpf.h"
#include "measure/times.bpf.h"

#define SENDERS 64
#define FLOWS 256
#define PROBES 4 /* places that are tried */
#define SECONDS_1987 (1 << 29)

enum probe_clock { BY_NUMBERS, MICROS, NANOS };

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

/* To measure the cost of a packet, the same frame is run many times, with increasing numbers and different times. */
#define TRIAL 2
#define TRIAL_APART 4

const volatile __u32 queues = 1; /* set by the loader, as the map's length is */
const volatile __u32 verdict = XDP_DROP;
const volatile __u32 is_timed = 1;
const volatile __u32 probe_clock = BY_NUMBERS;
const volatile __u32 may_return = 0; /* whether probes go back to the addresses in `returns` */
const volatile __u32 work_ns = 0; /* that a probe keeps us busy */
const volatile __u32 streams = 1; /* packets of other streams are foreign */
const volatile __u32 tag_inverse = 0; /* a tag times this is its stream, modulo 2^16; 0: every tag is stream 0's */
const volatile __u32 by_poll = 0; /* look at the clock once a poll of the device */

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

struct {
	NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	TYPE(key, __u32);
	TYPE(value, struct queue);
	NUMBER(max_entries, 2); /* twice as many as there are queues */
} by_queue SEC(".maps");

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

/* A similar packet may follow once sender, flow and number of the previous one are stored. */
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
		record(reader->sums, bank, is_same ? GAP : READER_GAP, gap);
	reader->last_ns = now;
	if (is_timed && sent) {
		transit = now - sent;
		if ((__s64)transit >= 0)
			record(reader->sums, bank, LATENCY, transit);
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
			record(reader->sums, bank, JITTER, apart);
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
			record(reader->sums, bank, FLOW_GAP, gap);
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

/* The packets that were similar to the previous one. */
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
	record_n(reader->sums, bank, GAP, 0, times);
	if (!run->sent)
		return 0;
	record_n(reader->sums, bank, JITTER, 0, times);
	if ((__s64)(run->now - run->sent) >= 0)
		record_n(reader->sums, bank, LATENCY, run->now - run->sent, times);
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
	__u32 zero = 0, bank, queue = ctx->rx_queue_index, frame_len, stream, is_ipv6, fate = verdict;
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
	stream = stream_of(udp, probe, end);
	if (UNLIKELY((stream * tag_inverse & 0xffff) >= streams)) {
		reader = bpf_map_lookup_elem(&readers, &bank);
		if (reader)
			reader->foreign++;
		return XDP_PASS;
	}
	packet.tag = tag_of(udp, stream, is_ipv6);
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
