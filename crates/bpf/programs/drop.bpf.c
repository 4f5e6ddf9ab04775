/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The least code that keeps a flood of one IPv4 address to one UDP port off the kernel: the baseline for
 * others. No deadline, no exclusions, no rules; two counters a CPU.
 */
#include "linerate.bpf.h"

const volatile __u32 source = 0; /* network order */
const volatile __u16 dst_port = 0;

/* Of the port's packets. */
enum { DROPPED, PASSED, COUNTS };

struct {
	NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	TYPE(key, __u32);
	TYPE(value, __u64);
	NUMBER(max_entries, COUNTS);
} counts SEC(".maps");

SEC("xdp")
int drop(struct xdp_md *ctx)
{
	__u8 *at = (void *)(__u64)ctx->data, *end = (void *)(__u64)ctx->data_end;
	__u32 count;
	__u64 *packets;

	/* IPv4 without options, like every packet of the flood. */
	if (at + ETH_LEN + IPV4_LEN + UDP_LEN > end || *(__u16 *)(at + 12) != htons(ETHERTYPE_IPV4) ||
	    at[ETH_LEN] != 0x45 || at[ETH_LEN + 9] != PROTOCOL_UDP ||
	    *(__u16 *)(at + ETH_LEN + IPV4_LEN + 2) != htons(dst_port))
		return XDP_PASS;
	count = *(__u32 *)(at + ETH_LEN + 12) == source ? DROPPED : PASSED;
	packets = bpf_map_lookup_elem(&counts, &count);
	if (packets)
		(*packets)++;
	return count == DROPPED ? XDP_DROP : XDP_PASS;
}
