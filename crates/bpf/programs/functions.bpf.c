/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Names the kernel function that an address lies in. /proc/kallsyms shows addresses to privileged readers alone; the
 * kernel's own formatting needs no address to leave it.
 */
#include "linerate.bpf.h"

#define LONGEST_NAME 64

static __s64 (*const bpf_snprintf)(char *to, __u32 size, const char *format, const void *values, __u32 bytes) =
	(void *)165;

/* `FunctionNames` in src/functions.rs writes the address and reads the name. */
struct state {
	__u64 address;
	char name[LONGEST_NAME];
};
_Static_assert(sizeof(struct state) == 72, "as the loader reads it");

struct state state;
/* The function without the offset in it, or the address as a number. */
static const char format[] = "%ps";

SEC("xdp")
int functions(struct xdp_md *ctx)
{
	__u64 address = state.address;

	return bpf_snprintf(state.name, sizeof(state.name), format, &address, sizeof(address)) > 0;
}
