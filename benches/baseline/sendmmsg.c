/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Baseline: what one thread sends through a plain connected UDP socket with sendmmsg.
 *
 *	sendmmsg <ip> <port> <payload bytes> <seconds> <cpu>
 *
 * No rate control, no offload, blocking calls of 1024 messages that share one payload of zeros; a refused
 * connection (no socket) is ignored. A negative cpu leaves the placement to the scheduler.
 * Prints one line: sent <packets> seconds <elapsed> cpu_s <user + system>
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

enum { BATCH = 1024, MAX_PAYLOAD = 65507 };

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static double cpu_time(void)
{
	struct rusage used;

	getrusage(RUSAGE_SELF, &used);
	return used.ru_utime.tv_sec + used.ru_utime.tv_usec / 1e6 +
	       used.ru_stime.tv_sec + used.ru_stime.tv_usec / 1e6;
}

static void pin(int cpu)
{
	cpu_set_t set;

	if (cpu < 0)
		return;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set) < 0)
		die("sched_setaffinity");
}

static int connected_socket(const char *ip, const char *port)
{
	struct addrinfo hints = { .ai_socktype = SOCK_DGRAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV };
	struct addrinfo *target;
	int error = getaddrinfo(ip, port, &hints, &target);
	int fd;

	if (error) {
		fprintf(stderr, "%s %s: %s\n", ip, port, gai_strerror(error));
		exit(2);
	}
	fd = socket(target->ai_family, SOCK_DGRAM, 0);
	if (fd < 0 || connect(fd, target->ai_addr, target->ai_addrlen) < 0)
		die("connect");
	freeaddrinfo(target);
	return fd;
}

int main(int argc, char **argv)
{
	static char payload[MAX_PAYLOAD];
	static struct mmsghdr messages[BATCH];
	struct iovec iov = { .iov_base = payload };
	unsigned long long sent = 0;
	double start, end, cpu, seconds;
	int fd, n, i;

	if (argc != 6 || atoi(argv[3]) < 0 || atoi(argv[3]) > MAX_PAYLOAD) {
		fprintf(stderr, "usage: sendmmsg <ip> <port> <payload bytes> <seconds> <cpu>\n");
		return 2;
	}
	iov.iov_len = atoi(argv[3]);
	seconds = atof(argv[4]);
	pin(atoi(argv[5]));
	fd = connected_socket(argv[1], argv[2]);
	for (i = 0; i < BATCH; i++) {
		messages[i].msg_hdr.msg_iov = &iov;
		messages[i].msg_hdr.msg_iovlen = 1;
	}

	cpu = cpu_time();
	start = now();
	do {
		n = sendmmsg(fd, messages, BATCH, 0);
		if (n > 0)
			sent += n;
		else if (errno != ECONNREFUSED)
			die("sendmmsg");
		end = now();
	} while (end - start < seconds);
	printf("sent %llu seconds %.6f cpu_s %.6f\n", sent, end - start, cpu_time() - cpu);
	return 0;
}
