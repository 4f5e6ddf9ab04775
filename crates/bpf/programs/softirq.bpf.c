/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Counts polls of network devices and the exact time of the softirq that receives packets, for each CPU.
 *
 * Raw tracepoints: napi:napi_poll(napi, work, budget), irq:softirq_entry(vec) and irq:softirq_exit(vec).
 */
#include "linerate.bpf.h"

#define NET_RX_SOFTIRQ 3

struct raw_tracepoint {
	__u64 args[3];
};

/* In the order of `NapiCounts` in src/softirq.rs; the moment of entry comes last. */
struct counts {
	__u64 polls;
	__u64 packets;
	__u64 full;
	__u64 empty;
	__u64 net_rx_ns;
	__u64 entered_ns;
};
_Static_assert(sizeof(struct counts) == 48, "six words, as the loader reads them");

struct {
	NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, __u32);
	TYPE(value, struct counts);
} by_cpu SEC(".maps");

static ALWAYS_INLINE struct counts *here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&by_cpu, &zero);
}

SEC("raw_tracepoint/napi_poll")
int napi_poll(struct raw_tracepoint *ctx)
{
	int work = (int)ctx->args[1], budget = (int)ctx->args[2];
	struct counts *counts = here();

	if (!counts)
		return 0;
	counts->polls++;
	if (work > 0)
		counts->packets += work;
	else
		counts->empty++;
	if (work >= budget)
		counts->full++;
	return 0;
}

SEC("raw_tracepoint/softirq_entry")
int softirq_entry(struct raw_tracepoint *ctx)
{
	struct counts *counts;

	if (ctx->args[0] != NET_RX_SOFTIRQ)
		return 0;
	counts = here();
	if (counts)
		counts->entered_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("raw_tracepoint/softirq_exit")
int softirq_exit(struct raw_tracepoint *ctx)
{
	struct counts *counts;

	if (ctx->args[0] != NET_RX_SOFTIRQ)
		return 0;
	counts = here();
	/* Attached in the middle of a round: its begin was not seen. */
	if (!counts || !counts->entered_ns)
		return 0;
	counts->net_rx_ns += bpf_ktime_get_ns() - counts->entered_ns;
	counts->entered_ns = 0;
	return 0;
}
