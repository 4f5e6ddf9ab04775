/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Everything goes to the kernel: gives a veth the receive rings that its peer's XDP frames need. */
#include "linerate.bpf.h"

SEC("xdp.frags")
int pass(struct xdp_md *ctx)
{
	return XDP_PASS;
}
