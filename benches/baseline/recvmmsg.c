/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Baseline: what one thread receives from a plain UDP socket with recvmmsg.
 *
 *	recvmmsg <ip> <port> <cpu> <seconds>
 *
 * Calls of 512 messages of 1920 bytes that wait for the first one (MSG_WAITFORONE); the socket's buffer is the
 * system's default. A negative cpu leaves the placement to the scheduler. Prints "ready" on stderr once
 * it listens, and ends after <seconds>, at most 0.1 s late.
 * Prints one line: received <packets> seconds <first to last batch> cpu_s <user + system>
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
#include <sys/time.h>
#include <time.h>

enum { BATCH = 512, BYTES = 1920 };

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

static int bound_socket(const char *ip, const char *port)
{
	struct addrinfo hints = { .ai_socktype = SOCK_DGRAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV };
	struct timeval look_at_the_clock = { .tv_usec = 100000 };
	struct addrinfo *own;
	int error = getaddrinfo(ip, port, &hints, &own);
	int fd;

	if (error) {
		fprintf(stderr, "%s %s: %s\n", ip, port, gai_strerror(error));
		exit(2);
	}
	fd = socket(own->ai_family, SOCK_DGRAM, 0);
	if (fd < 0 || bind(fd, own->ai_addr, own->ai_addrlen) < 0)
		die("bind");
	if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &look_at_the_clock, sizeof(look_at_the_clock)) < 0)
		die("SO_RCVTIMEO");
	freeaddrinfo(own);
	return fd;
}

int main(int argc, char **argv)
{
	static char payload[BATCH][BYTES];
	static struct mmsghdr messages[BATCH];
	static struct iovec iov[BATCH];
	unsigned long long received = 0;
	double start, time, first = 0, last = 0, cpu, seconds;
	int fd, n, i;

	if (argc != 5) {
		fprintf(stderr, "usage: recvmmsg <ip> <port> <cpu> <seconds>\n");
		return 2;
	}
	pin(atoi(argv[3]));
	seconds = atof(argv[4]);
	fd = bound_socket(argv[1], argv[2]);
	for (i = 0; i < BATCH; i++) {
		iov[i] = (struct iovec){ .iov_base = payload[i], .iov_len = BYTES };
		messages[i].msg_hdr.msg_iov = &iov[i];
		messages[i].msg_hdr.msg_iovlen = 1;
	}
	fprintf(stderr, "ready\n");

	cpu = cpu_time();
	start = now();
	do {
		n = recvmmsg(fd, messages, BATCH, MSG_WAITFORONE, NULL);
		time = now();
		if (n > 0) {
			if (!received)
				first = time;
			last = time;
			received += n;
		} else if (errno != EAGAIN && errno != EINTR) {
			die("recvmmsg");
		}
	} while (time - start < seconds);
	printf("received %llu seconds %.6f cpu_s %.6f\n", received, last - first, cpu_time() - cpu);
	return 0;
}
