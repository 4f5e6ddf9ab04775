/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Counts probe packets (kernel pktgen's header at the start of the UDP payload) by stream and CPU, and consumes
 * them. All other packets go to the kernel. Checksums are not verified.
 */
#include "linerate.bpf.h"

#define WINDOW 256
#define FOREIGN_SLOT 0

/* What one CPU saw of one stream. `foreign` is of all streams together and counted in the first. */
struct stream {
	__u64 packets;
	__u64 payload_bytes;
	__u64 foreign;
	__u64 span;       /* sequence numbers from the lowest to the highest seen */
	__u64 reordered;  /* came after a higher number, and not before within the window */
	__u64 duplicates; /* came before, within the window */
	__u64 stale;      /* behind by more than the window: reordered or duplicate */
	__u64 frame_bytes; /* Ethernet header to FCS */
	__u32 next;       /* the highest number seen, plus 1 */
	/* Packets behind the first `counted` came on this queue; `by_queue` has the others. No look-up for each. */
	__u32 queue;
	__u64 counted;
	__u64 counted_payload_bytes;
	__u64 counted_frame_bytes;
	/* The last number seen at each place, plus 1: finds duplicates and is never cleared. */
	__u32 seen[WINDOW];
};
_Static_assert(sizeof(struct stream) == 12 * 8 + 4 * WINDOW, "read by count.rs");

const volatile __u32 streams = 256; /* set by the loader, as the map's length is */
const volatile __u32 tag_inverse = 1; /* a tag times this is its stream, modulo 2^16 */
const volatile __u32 queues = 0;    /* 0: queues are not counted */
const volatile __u32 verdict = XDP_DROP;
const volatile __u32 work_ns = 0; /* that a packet keeps us busy */

struct {
	NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	TYPE(key, __u32);
	TYPE(value, struct stream);
	NUMBER(max_entries, 256);
} by_stream SEC(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	TYPE(key, __u32);
	TYPE(value, struct queue);
	NUMBER(max_entries, 1);
} by_queue SEC(".maps");

static ALWAYS_INLINE void track(struct stream *stream, __u32 sequence)
{
	__u32 *seen = &stream->seen[sequence % WINDOW];
	__u32 ahead = sequence - stream->next;
	__u32 behind = -ahead;

	if (UNLIKELY(stream->packets == 0)) {
		stream->next = sequence;
		/* 0 would mean number 2^32 - 1, which belongs here. */
		stream->seen[WINDOW - 1] = 1;
		ahead = 0;
	}
	if ((int)ahead >= 0) {
		stream->span += (__u64)ahead + 1;
		stream->next = sequence + 1;
		*seen = sequence + 1;
		return;
	}
	if (behind > stream->span)
		stream->span = behind;
	if (behind > WINDOW) {
		stream->stale++;
		return;
	}
	if (*seen == sequence + 1) {
		stream->duplicates++;
	} else {
		stream->reordered++;
		*seen = sequence + 1;
	}
}

/* The next packets come on another queue: those of this one are counted there. */
static ALWAYS_INLINE void change_queue(struct stream *stream, __u32 queue)
{
	__u32 before = stream->queue;
	struct queue *counts = bpf_map_lookup_elem(&by_queue, &before);

	if (counts) {
		counts->packets += stream->packets - stream->counted;
		counts->payload_bytes += stream->payload_bytes - stream->counted_payload_bytes;
		counts->frame_bytes += stream->frame_bytes - stream->counted_frame_bytes;
	}
	stream->counted = stream->packets;
	stream->counted_payload_bytes = stream->payload_bytes;
	stream->counted_frame_bytes = stream->frame_bytes;
	stream->queue = queue;
}

static ALWAYS_INLINE int foreign(void)
{
	__u32 slot = FOREIGN_SLOT;
	struct stream *stream = bpf_map_lookup_elem(&by_stream, &slot);

	if (stream)
		stream->foreign++;
	return XDP_PASS;
}

SEC("xdp.frags")
int count(struct xdp_md *ctx)
{
	void *data = (void *)(__u64)ctx->data, *end = (void *)(__u64)ctx->data_end;
	struct udp *udp = udp_of(data, end);
	struct stream *stream;
	struct probe *probe;
	__u32 slot, len, frame_len;

	if (!udp)
		return foreign();
	probe = probe_of(udp, end);
	if (!probe)
		return foreign();
	len = ntohs(udp->len) - UDP_LEN;
	slot = (stream_of(udp, probe, end) * tag_inverse) & 0xffff;
	if (slot >= streams)
		return foreign();

	stream = bpf_map_lookup_elem(&by_stream, &slot);
	if (!stream)
		return XDP_PASS;
	if (queues && UNLIKELY(ctx->rx_queue_index != stream->queue))
		change_queue(stream, ctx->rx_queue_index);
	track(stream, ntohl(probe->sequence));
	stream->packets++;
	stream->payload_bytes += len;
	frame_len = end - data + FCS_LEN;
	stream->frame_bytes += frame_len < LEAST_FRAME ? LEAST_FRAME : frame_len;
	if (work_ns)
		work(work_ns);
	return verdict;
}
