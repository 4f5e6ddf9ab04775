/* A plain TX_RING sender: fill every free slot, one send() per batch, bypassing the queueing discipline.
 *
 *   txring INTERFACE SECONDS CPU FRAME_BYTES
 *
 * Prints "sent N packets, N ns of CPU time". Frames of 60 to 1514 bytes (without FCS) to 02:00:00:00:00:03,
 * a station that does not exist: the receiver drops them at once. */
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

#define BATCH 128
#define BLOCK_BYTES 65536
#define BLOCKS 8
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
	static const unsigned char frame[60] = {
		2, 0, 0, 0, 0, 3, 2, 0, 0, 0, 0, 1, 8, 0,
		0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0xee, 0x97, 198, 18, 0, 1, 198, 19, 0, 1,
		0, 9, 0, 9, 0, 26, 0, 0,
	};
	struct tpacket_req ring = { .tp_block_size = BLOCK_BYTES };
	struct sockaddr_ll to = { .sll_family = AF_PACKET };
	int version = TPACKET_V2, one = 1;
	uint64_t end, cpu_ns, sent = 0;
	unsigned int head = 0, frame_bytes, slot_bytes = 128;
	cpu_set_t cpus;
	uint8_t *slots;
	int fd;

	if (argc != 5 || (frame_bytes = atoi(argv[4])) < sizeof(frame) || frame_bytes > 1514) {
		fprintf(stderr, "usage: txring INTERFACE SECONDS CPU FRAME_BYTES (60 to 1514)\n");
		return 2;
	}
	while (slot_bytes < BEFORE_FRAME + frame_bytes)
		slot_bytes *= 2;
	ring.tp_frame_size = slot_bytes;
	ring.tp_block_nr = slot_bytes < 1024 ? 1 : BLOCKS;
	ring.tp_frame_nr = ring.tp_block_nr * (BLOCK_BYTES / slot_bytes);
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
	slots = mmap(NULL, ring.tp_block_nr * BLOCK_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (slots == MAP_FAILED)
		check(-1, "mmap");
	for (unsigned int i = 0; i < ring.tp_frame_nr; i++)
		memcpy(slots + i * slot_bytes + BEFORE_FRAME, frame, sizeof(frame));

	end = now_ns(CLOCK_MONOTONIC) + atof(argv[2]) * 1e9;
	cpu_ns = now_ns(CLOCK_PROCESS_CPUTIME_ID);
	while (now_ns(CLOCK_MONOTONIC) < end) {
		for (int i = 0; i < BATCH; i++) {
			struct tpacket2_hdr *slot = (void *)(slots + head * slot_bytes);

			if (__atomic_load_n(&slot->tp_status, __ATOMIC_ACQUIRE) != TP_STATUS_AVAILABLE)
				break;
			slot->tp_len = frame_bytes;
			__atomic_store_n(&slot->tp_status, TP_STATUS_SEND_REQUEST, __ATOMIC_RELEASE);
			head = (head + 1) % ring.tp_frame_nr;
			sent++;
		}
		check(send(fd, NULL, 0, MSG_DONTWAIT), "send");
	}
	cpu_ns = now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns;
	printf("sent %llu packets, %llu ns of CPU time\n", (unsigned long long)sent, (unsigned long long)cpu_ns);
	return 0;
}
