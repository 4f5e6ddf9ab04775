/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Re-injects packets: each of BPF_PROG_RUN's live frames gets the bytes of the next slot and goes up the
 * stack as if it had just arrived. The process that runs the program writes the slots first.
 */
#include "linerate.bpf.h"

#define LONGEST 2040
#define BASE 64 /* bytes of a live frame before it gets its own */
#define LEAST 14

struct slot {
	__u32 len;
	__u32 unused;
	__u8 bytes[LONGEST];
};
_Static_assert(sizeof(struct slot) == 2048, "written by inject.rs");

struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	TYPE(key, __u32);
	TYPE(value, struct slot);
	NUMBER(max_entries, 256);
	NUMBER(map_flags, BPF_F_MMAPABLE);
} slots SEC(".maps");

/* The next slot; written before a run, read after it. */
struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	TYPE(key, __u32);
	TYPE(value, __u32);
	NUMBER(max_entries, 1);
} cursor SEC(".maps");

SEC("xdp")
int inject(struct xdp_md *ctx)
{
	__u32 zero = 0, number, len;
	__u32 *next = bpf_map_lookup_elem(&cursor, &zero);
	struct slot *slot;

	if (!next)
		return XDP_ABORTED;
	number = *next;
	slot = bpf_map_lookup_elem(&slots, &number);
	if (!slot)
		return XDP_ABORTED;
	*next = number + 1;
	len = slot->len;
	if (len < LEAST || len > LONGEST)
		return XDP_ABORTED;
	if (bpf_xdp_adjust_tail(ctx, (int)len - BASE))
		return XDP_ABORTED;
	if (bpf_xdp_store_bytes(ctx, 0, slot->bytes, len))
		return XDP_ABORTED;
	return XDP_PASS;
}
