/* Counts the instructions of an emulated machine with one CPU by function, caller and thread: a plugin of QEMU.
 *
 * The guest starts and ends a count by instructions that do nothing (sys/src/counting.rs); each count becomes a section of
 * the file `counts`. `symbols` names the guest's /proc/kallsyms, or the lines of it that `entered_by` looks for.
 *
 *   count			a section begins
 *   node ID PARENT CALLER TARGET   code at TARGET, called before CALLER, by what PARENT was; nodes 0 to 2 are threads
 *   block NODE ADDRESS INSTRUCTIONS AGAIN BYTES   what ran at ADDRESS on behalf of NODE
 *   end			the section is complete
 *
 * AGAIN counts the repetitions of string instructions behind the first, which the emulator takes for instructions; they
 * are not in INSTRUCTIONS. BYTES is what string instructions wrote.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "emulator.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT int qemu_plugin_version = 3;
EXPORT int qemu_plugin_install(plugin_id id, const struct emulator *emulator, int argc, char **argv);

/* The marks of sys/src/counting.rs: nop DISPLACEMENT(%rax), whose displacement is this and the mark's number. */
#define MARK 0x4c520000u
enum mark { BEGIN = 1, END = 2, FORGET = 3, SENDER = 4, RECEIVER = 5, WORK = 6, REST = 7 };

enum role { OTHER, SENDS, RECEIVES, ROLES };

/* How a block's last instruction goes on. */
enum ending { JUMPS, CALLS, RETURNS, RETURNS_FROM_INTERRUPT };

struct block {
	uint64_t start, last, end;	/* of the block, of its last instruction, behind it */
	uint32_t instructions;
	uint32_t node, count;		/* where it was counted last */
	uint8_t ending;
	bool repeats;			/* begins with a string instruction that repeats itself */
};

struct node {
	uint32_t parent;
	uint64_t caller, target;
};

struct count {
	uint64_t start;
	uint32_t node;
	uint64_t instructions, again, bytes;
};

/* What a thread returns to. */
struct frame {
	uint32_t node;
	uint64_t address;
	const struct block *interrupted;	/* set where an interrupt was entered, which returns by IRET */
};

#define DEEPEST 192

struct thread {
	uint64_t id;
	uint32_t generation, depth;
	enum role role;			/* while it works */
	bool works;
	struct frame frames[DEEPEST];
};

/* Numbers by a key of two words: open addressing, a power of two of slots. */
struct table {
	struct slot { uint64_t a, b; uint32_t value; bool used; } *slots;
	size_t size, used;
};

static const char *counts_path, *symbols_path;
static bool counting;
static uint32_t generation;
static FILE *out;

static struct table blocks_known, nodes_known, counts_known, threads_known;
static struct block **blocks;
static struct node *nodes;
static struct count *counts;
static struct thread **threads;
static size_t blocks_used, blocks_room, nodes_used, nodes_room, counts_used, counts_room, threads_used, threads_room;

static struct thread *current;
static const struct block *before;
static uint32_t counted;		/* the count of the block that runs */

static uint64_t stubs_start, stubs_end, *entries;
static size_t entries_used, entries_room;

static void fail(const char *what)
{
	fprintf(stderr, "counter: %s\n", what);
	exit(1);
}

static void *grown(void *items, size_t used, size_t *room, size_t size)
{
	if (used < *room)
		return items;
	*room = *room ? *room * 2 : 1024;
	items = realloc(items, *room * size);
	if (!items)
		fail("out of memory");
	return items;
}

static size_t place(const struct table *table, uint64_t a, uint64_t b)
{
	uint64_t hash = (a ^ (b + 0x9e3779b97f4a7c15u + (a << 6) + (a >> 2))) * 0xff51afd7ed558ccdu;
	size_t at = (hash ^ (hash >> 32)) & (table->size - 1);

	while (table->slots[at].used && (table->slots[at].a != a || table->slots[at].b != b))
		at = (at + 1) & (table->size - 1);
	return at;
}

/* The value of a key; *is_new and undefined for one that was not there. */
static uint32_t *value_of(struct table *table, uint64_t a, uint64_t b, bool *is_new)
{
	size_t at;

	if (2 * table->used >= table->size) {
		struct table old = *table;

		table->size = old.size ? 2 * old.size : 4096;
		table->slots = calloc(table->size, sizeof(*table->slots));
		if (!table->slots)
			fail("out of memory");
		for (at = 0; at < old.size; at++)
			if (old.slots[at].used)
				table->slots[place(table, old.slots[at].a, old.slots[at].b)] = old.slots[at];
		free(old.slots);
	}
	at = place(table, a, b);
	*is_new = !table->slots[at].used;
	if (*is_new) {
		table->slots[at] = (struct slot){ .a = a, .b = b, .used = true };
		table->used++;
	}
	return &table->slots[at].value;
}

static void empty(struct table *table)
{
	free(table->slots);
	*table = (struct table){};
}

static bool is_user(uint64_t address)
{
	return address >> 63 == 0;
}

/* Where the kernel is entered by what it did not call. */
static bool entered_by(uint64_t address)
{
	size_t low = 0, high = entries_used;

	if (address >= stubs_start && address < stubs_end)
		return true;
	while (low < high) {
		size_t middle = (low + high) / 2;

		if (entries[middle] == address)
			return true;
		if (entries[middle] < address)
			low = middle + 1;
		else
			high = middle;
	}
	return false;
}

static int ascending(const void *a, const void *b)
{
	uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;

	return one < other ? -1 : one > other;
}

static void read_symbols(void)
{
	char line[512], kind, name[256];
	unsigned long long address;
	FILE *file = fopen(symbols_path, "r");

	if (!file)
		fail("cannot read the guest's symbols");
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%llx %c %255s", &address, &kind, name) != 3)
			continue;
		if (!strcmp(name, "irq_entries_start"))
			stubs_start = address;
		else if (!strcmp(name, "spurious_entries_start"))
			/* 256 vectors of at most 16 bytes */
			stubs_end = address + 4096;
		else if (!strncmp(name, "asm_exc_", 8) || !strncmp(name, "asm_sysvec_", 11) ||
			 !strcmp(name, "asm_common_interrupt") || !strcmp(name, "asm_spurious_interrupt")) {
			entries = grown(entries, entries_used, &entries_room, sizeof(*entries));
			entries[entries_used++] = address;
		}
	}
	fclose(file);
	if (!entries_used || !stubs_start)
		fail("the guest's symbols name no entry of an interrupt");
	qsort(entries, entries_used, sizeof(*entries), ascending);
}

static uint32_t node_of(uint32_t parent, uint64_t caller, uint64_t target)
{
	bool is_new;
	uint32_t *known = value_of(&nodes_known, caller ^ ((uint64_t)parent << 40), target, &is_new);

	if (is_new) {
		nodes = grown(nodes, nodes_used, &nodes_room, sizeof(*nodes));
		nodes[nodes_used] = (struct node){ .parent = parent, .caller = caller, .target = target };
		*known = nodes_used++;
	}
	return *known;
}

static uint32_t count_of(uint32_t node, uint64_t start)
{
	bool is_new;
	uint32_t *known = value_of(&counts_known, node, start, &is_new);

	if (is_new) {
		counts = grown(counts, counts_used, &counts_room, sizeof(*counts));
		counts[counts_used] = (struct count){ .node = node, .start = start };
		*known = counts_used++;
	}
	return *known;
}

static struct thread *thread_of(uint64_t id)
{
	bool is_new;
	uint32_t *known = value_of(&threads_known, id, 0, &is_new);

	if (is_new) {
		threads = grown(threads, threads_used, &threads_room, sizeof(*threads));
		threads[threads_used] = calloc(1, sizeof(**threads));
		if (!threads[threads_used])
			fail("out of memory");
		threads[threads_used]->id = id;
		*known = threads_used++;
	}
	return threads[*known];
}

static void begin(void)
{
	if (symbols_path && !entries_used)
		read_symbols();
	empty(&nodes_known);
	empty(&counts_known);
	nodes_used = counts_used = 0;
	while (nodes_used < ROLES) {
		nodes = grown(nodes, nodes_used, &nodes_room, sizeof(*nodes));
		nodes[nodes_used++] = (struct node){};
	}
	for (size_t i = 0; i < blocks_used; i++)
		blocks[i]->node = UINT32_MAX;
	generation++;
	before = NULL;
	counting = true;
}

static void end(void)
{
	if (!counting)
		return;
	counting = false;
	if (!out)
		out = fopen(counts_path, "w");
	if (!out)
		fail("cannot write the counts");
	fprintf(out, "count\n");
	for (size_t i = ROLES; i < nodes_used; i++)
		fprintf(out, "node %zu %u %llx %llx\n", i, nodes[i].parent, (unsigned long long)nodes[i].caller,
			(unsigned long long)nodes[i].target);
	for (size_t i = 0; i < counts_used; i++)
		fprintf(out, "block %u %llx %llu %llu %llu\n", counts[i].node, (unsigned long long)counts[i].start,
			(unsigned long long)counts[i].instructions, (unsigned long long)counts[i].again,
			(unsigned long long)counts[i].bytes);
	fprintf(out, "end\n");
	if (fflush(out))
		fail("cannot write the counts");
	for (size_t i = 0; i < threads_used; i++)
		threads[i]->role = OTHER, threads[i]->works = false;
}

static void forget(void)
{
	if (out)
		fprintf(out, "forget\n");
	if (out && fflush(out))
		fail("cannot write the counts");
}

static void marked(unsigned int cpu, void *what)
{
	(void)cpu;
	switch ((enum mark)(uintptr_t)what) {
	case BEGIN: begin(); break;
	case END: end(); break;
	case FORGET: forget(); break;
	case SENDER: current->role = SENDS; break;
	case RECEIVER: current->role = RECEIVES; break;
	case WORK: current->works = true; break;
	case REST: current->works = false; break;
	}
}

/* __switch_to_asm takes the next thread's stack from it: the address is the thread's own. */
static void switched(unsigned int cpu, memory_access access, uint64_t address, void *what)
{
	(void)cpu, (void)access, (void)what;
	current = thread_of(address);
}

static void wrote(unsigned int cpu, memory_access access, uint64_t address, void *what)
{
	(void)cpu, (void)address, (void)what;
	if (counting && counts_used)
		counts[counted].bytes += 1u << qemu_plugin_mem_size_shift(access);
}

static uint32_t top(const struct thread *thread)
{
	if (thread->depth)
		return thread->frames[thread->depth - 1].node;
	return thread->works ? thread->role : OTHER;
}

static void push(struct thread *thread, uint64_t address, const struct block *to, const struct block *interrupted)
{
	if (thread->depth == DEEPEST)
		return;
	thread->frames[thread->depth] = (struct frame){
		.node = node_of(top(thread), address, to->start),
		.address = address,
		.interrupted = interrupted,
	};
	thread->depth++;
}

/* Follows the thread from one block to the next. */
static void follow(struct thread *thread, const struct block *from, const struct block *to)
{
	if (is_user(to->start)) {
		thread->depth = 0;
		return;
	}
	if (is_user(from->start)) {
		thread->depth = 0;
		push(thread, 0, to, NULL);
		return;
	}
	if (from->ending == RETURNS_FROM_INTERRUPT) {
		for (uint32_t depth = thread->depth; depth > 0; depth--) {
			const struct block *interrupted = thread->frames[depth - 1].interrupted;

			if (!interrupted)
				continue;
			thread->depth = depth - 1;
			follow(thread, interrupted, to);
			return;
		}
		return;
	}
	if (entered_by(to->start)) {
		push(thread, from->end, to, from);
		return;
	}
	/* Goes on in the middle of a block that an exception or the emulator cut. */
	if (to->start > from->start && to->start < from->end)
		return;
	switch (from->ending) {
	case CALLS:
		push(thread, from->end, to, NULL);
		return;
	case RETURNS:
		for (uint32_t depth = thread->depth; depth > 0; depth--) {
			if (thread->frames[depth - 1].interrupted)
				break;
			if (thread->frames[depth - 1].address == to->start) {
				thread->depth = depth - 1;
				return;
			}
		}
		/* Called before the count began. An interrupt's frame stays. */
		while (thread->depth && !thread->frames[thread->depth - 1].interrupted)
			thread->depth--;
		return;
	}
}

static void executed(unsigned int cpu, void *what)
{
	struct block *block = what;
	struct thread *thread = current;
	const struct block *from = before;
	uint32_t node;

	(void)cpu;
	if (!counting)
		return;
	if (thread->generation != generation) {
		thread->generation = generation;
		thread->depth = 0;
	}
	before = block;
	if (from)
		follow(thread, from, block);
	node = top(thread);
	if (block->node != node) {
		block->node = node;
		block->count = count_of(node, block->start);
	}
	counted = block->count;
	counts[counted].instructions += block->instructions;
	if (block->repeats && from && from->last == block->start) {
		counts[counted].instructions--;
		counts[counted].again++;
	}
}

/* A prefix of an instruction before its REX prefix. */
static bool is_prefix(uint8_t byte)
{
	switch (byte) {
	case 0x26: case 0x2e: case 0x36: case 0x3e: case 0x64: case 0x65: case 0x66: case 0x67: case 0xf0: case 0xf2:
	case 0xf3:
		return true;
	}
	return false;
}

struct decoded {
	uint8_t opcode, modrm;
	bool repeats;
};

static struct decoded decode(const uint8_t *code, size_t size)
{
	struct decoded found = {};
	size_t at = 0;

	for (; at < size && is_prefix(code[at]); at++)
		found.repeats |= code[at] == 0xf2 || code[at] == 0xf3;
	if (at < size && (code[at] & 0xf0) == 0x40)
		at++;
	if (at < size)
		found.opcode = code[at];
	if (at + 1 < size)
		found.modrm = code[at + 1];
	return found;
}

static enum ending ending_of(struct decoded found)
{
	uint8_t operation = (found.modrm >> 3) & 7;

	switch (found.opcode) {
	case 0xe8:
		return CALLS;
	case 0xff:
		return operation == 2 || operation == 3 ? CALLS : JUMPS;
	case 0xc2: case 0xc3: case 0xca: case 0xcb:
		return RETURNS;
	case 0xcf:
		return RETURNS_FROM_INTERRUPT;
	}
	return JUMPS;
}

static bool is_string(struct decoded found)
{
	return found.repeats && ((found.opcode >= 0xa4 && found.opcode <= 0xa7) ||
				 (found.opcode >= 0xaa && found.opcode <= 0xaf) ||
				 (found.opcode >= 0x6c && found.opcode <= 0x6f));
}

/* Blocks are translated again and again: one record for all of one address and form. */
static struct block *block_of(const struct block *like)
{
	bool is_new;
	uint64_t form = (uint64_t)like->instructions << 32 | (uint64_t)(like->end - like->start) << 8 |
			(uint64_t)like->ending << 1 | like->repeats;
	uint32_t *known = value_of(&blocks_known, like->start, form, &is_new);

	if (is_new) {
		blocks = grown(blocks, blocks_used, &blocks_room, sizeof(*blocks));
		blocks[blocks_used] = malloc(sizeof(**blocks));
		if (!blocks[blocks_used])
			fail("out of memory");
		*blocks[blocks_used] = *like;
		*known = blocks_used++;
	}
	return blocks[*known];
}

static void translated(plugin_id id, struct qemu_plugin_tb *tb)
{
	size_t all = qemu_plugin_tb_n_insns(tb);
	struct block like = { .start = qemu_plugin_tb_vaddr(tb), .instructions = all, .node = UINT32_MAX };
	uint8_t code[16];

	(void)id;
	for (size_t i = 0; i < all; i++) {
		struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(tb, i);
		size_t size = qemu_plugin_insn_data(instruction, code, sizeof(code));
		struct decoded found = decode(code, size);
		uint32_t displacement = 0;

		if (size >= 7)
			memcpy(&displacement, code + 3, sizeof(displacement));
		if (is_string(found)) {
			qemu_plugin_register_vcpu_mem_cb(instruction, wrote, REGISTERS_UNUSED, WRITES, NULL);
			like.repeats |= i == 0;
		}
		/* mov DISPLACEMENT(%rsi),%rsp */
		if (!is_user(like.start) && size == 7 && !memcmp(code, "\x48\x8b\xa6", 3))
			qemu_plugin_register_vcpu_mem_cb(instruction, switched, REGISTERS_UNUSED, READS, NULL);
		/* nopl DISPLACEMENT(%rax) */
		if (is_user(like.start) && size == 7 && !memcmp(code, "\x0f\x1f\x80", 3) &&
		    displacement > MARK && displacement <= MARK + REST)
			qemu_plugin_register_vcpu_insn_exec_cb(instruction, marked, REGISTERS_UNUSED,
							       (void *)(uintptr_t)(displacement - MARK));
		if (i + 1 == all) {
			like.last = qemu_plugin_insn_vaddr(instruction);
			like.end = like.last + qemu_plugin_insn_size(instruction);
			like.ending = ending_of(found);
		}
	}
	qemu_plugin_register_vcpu_tb_exec_cb(tb, executed, REGISTERS_UNUSED, block_of(&like));
}

int qemu_plugin_install(plugin_id id, const struct emulator *emulator, int argc, char **argv)
{
	(void)emulator;
	for (int i = 0; i < argc; i++) {
		if (!strncmp(argv[i], "counts=", 7))
			counts_path = argv[i] + 7;
		else if (!strncmp(argv[i], "symbols=", 8))
			symbols_path = argv[i] + 8;
	}
	if (!counts_path) {
		fprintf(stderr, "counter: counts=FILE is missing\n");
		return 1;
	}
	current = thread_of(0);
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
