/* The part of QEMU's plugin interface that the counter uses, written from its documentation
 * (https://www.qemu.org/docs/master/devel/tcg-plugins.html); no distribution packages a header of it.
 * Version 3 of the interface is the first whose qemu_plugin_insn_data copies, QEMU 9.1's. */
#include <stddef.h>
#include <stdint.h>

struct emulator;		/* what the emulator says about itself */
struct qemu_plugin_tb;		/* a block while it is translated */
struct qemu_plugin_insn;	/* an instruction of it */

typedef uint64_t plugin_id;
typedef uint32_t memory_access;

enum registers { REGISTERS_UNUSED, REGISTERS_READ, REGISTERS_WRITTEN };
enum accesses { READS = 1, WRITES = 2, READS_AND_WRITES = 3 };

typedef void (*when_translated)(plugin_id id, struct qemu_plugin_tb *block);
typedef void (*when_executed)(unsigned int cpu, void *what);
typedef void (*when_accessed)(unsigned int cpu, memory_access access, uint64_t address, void *what);

void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id id, when_translated call);
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *block, when_executed call, enum registers registers,
					  void *what);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *instruction, when_executed call,
					    enum registers registers, void *what);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *instruction, when_accessed call,
				      enum registers registers, enum accesses accesses, void *what);

size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *block);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *block, size_t index);
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *instruction, void *to, size_t size);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *instruction);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *instruction);
unsigned int qemu_plugin_mem_size_shift(memory_access access);
