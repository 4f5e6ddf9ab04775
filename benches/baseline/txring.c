/* A plain TX_RING sender: fill every free slot, one send() a batch, past the queueing discipline.
 *
 *   txring INTERFACE SECONDS CPU
 *
 * Prints "sent N packets, N ns of CPU time". 64-byte frames (60 without FCS) to 02:00:00:00:00:03,
 * a station that is not there: whoever receives one drops it at once. */
#define _GNU_SOURCE
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>

#define FRAME 60
#define BATCH 128
#define SLOTS 512
#define SLOT_BYTES 128
#define BEFORE_FRAME TPACKET_ALIGN(sizeof(struct tpacket2_hdr))

static uint64_t now_ns(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static void check(int status, const char *what)
{
	if (status < 0) {
		perror(what);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	static const unsigned char frame[FRAME] = {
		2, 0, 0, 0, 0, 3, 2, 0, 0, 0, 0, 1, 8, 0,
		0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0xee, 0x97, 198, 18, 0, 1, 198, 19, 0, 1,
		0, 9, 0, 9, 0, 26, 0, 0,
	};
	struct tpacket_req ring = {
		.tp_block_size = SLOTS * SLOT_BYTES,
		.tp_block_nr = 1,
		.tp_frame_size = SLOT_BYTES,
		.tp_frame_nr = SLOTS,
	};
	struct sockaddr_ll to = { .sll_family = AF_PACKET };
	int version = TPACKET_V2, one = 1;
	uint64_t end, cpu_ns, sent = 0;
	unsigned int head = 0;
	cpu_set_t cpus;
	uint8_t *slots;
	int fd;

	if (argc != 4) {
		fprintf(stderr, "usage: txring INTERFACE SECONDS CPU\n");
		return 2;
	}
	CPU_ZERO(&cpus);
	CPU_SET(atoi(argv[3]), &cpus);
	check(sched_setaffinity(0, sizeof(cpus), &cpus), "sched_setaffinity");
	fd = socket(AF_PACKET, SOCK_RAW, 0);
	check(fd, "socket");
	check(setsockopt(fd, SOL_PACKET, PACKET_VERSION, &version, sizeof(version)), "PACKET_VERSION");
	check(setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &one, sizeof(one)), "PACKET_QDISC_BYPASS");
	check(setsockopt(fd, SOL_PACKET, PACKET_TX_RING, &ring, sizeof(ring)), "PACKET_TX_RING");
	to.sll_ifindex = if_nametoindex(argv[1]);
	check(bind(fd, (struct sockaddr *)&to, sizeof(to)), "bind");
	slots = mmap(NULL, SLOTS * SLOT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (slots == MAP_FAILED)
		check(-1, "mmap");
	for (int i = 0; i < SLOTS; i++)
		memcpy(slots + i * SLOT_BYTES + BEFORE_FRAME, frame, FRAME);

	end = now_ns(CLOCK_MONOTONIC) + atof(argv[2]) * 1e9;
	cpu_ns = now_ns(CLOCK_PROCESS_CPUTIME_ID);
	while (now_ns(CLOCK_MONOTONIC) < end) {
		for (int i = 0; i < BATCH; i++) {
			struct tpacket2_hdr *slot = (void *)(slots + head * SLOT_BYTES);

			if (__atomic_load_n(&slot->tp_status, __ATOMIC_ACQUIRE) != TP_STATUS_AVAILABLE)
				break;
			slot->tp_len = FRAME;
			__atomic_store_n(&slot->tp_status, TP_STATUS_SEND_REQUEST, __ATOMIC_RELEASE);
			head = (head + 1) % SLOTS;
			sent++;
		}
		check(send(fd, NULL, 0, MSG_DONTWAIT), "send");
	}
	cpu_ns = now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns;
	printf("sent %llu packets, %llu ns of CPU time\n", (unsigned long long)sent, (unsigned long long)cpu_ns);
	return 0;
}
