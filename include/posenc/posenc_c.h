/* SPDX-License-Identifier: Apache-2.0 */
/* The C interface: rotary plans and tables on DLPack tensors. No C++ exception crosses it, nothing
   is printed, and no call keeps a tensor. Plans are immutable and may be used by any number of
   threads at once; a table may be read by any number of threads while one grows it.

   Every call that can fail returns a posenc_status and, where `error` is not null, writes one
   sentence there ("[rope] head_dim must be positive and even, got 7"). Out parameters are written
   only on success.

   Structs grow at their end. The first member of each says how many bytes the caller's has:
       posenc_error error = {.struct_size = sizeof error};
   A smaller one, of a program compiled with an older header, is read and written only so far; of a
   larger one the rest is set to 0. A size of 0 or below the first field is refused. */
#ifndef POSENC_C_H_
#define POSENC_C_H_
#include <stddef.h>
#include <stdint.h>

#include "posenc/core/export.h"
#include "posenc/dlpack_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum posenc_status {
  POSENC_OK = 0,
  POSENC_INVALID_ARGUMENT = 1, /* a wrong argument: who, rule, value */
  POSENC_BAD_FILE = 2, /* a file that cannot be read, or whose positions are not determined */
  POSENC_OUT_OF_MEMORY = 3,
  POSENC_FAILED = 4 /* anything else; the message says what */
} posenc_status;

/* Of a wrong struct_size: the call does nothing and returns POSENC_INVALID_ARGUMENT. */
typedef struct posenc_error {
  size_t struct_size;
  char message[512]; /* always terminated; cut when longer */
} posenc_error;

/* None of the choices below. Being the smallest int it makes every int a value that may be passed, so
   that a wrong one is refused. */
enum { POSENC_NONE = -2147483647 - 1 };

/* Element types of plans and tables. */
typedef enum posenc_dtype {
  POSENC_F64 = 0,
  POSENC_F32 = 1,
  POSENC_F16 = 2,
  POSENC_BF16 = 3,
  POSENC_DTYPE_NONE = POSENC_NONE
} posenc_dtype;

/* g is the plan's gain. */
typedef enum posenc_rotate_mode {
  POSENC_FORWARD = 0,  /* g R(p) */
  POSENC_GRADIENT = 1, /* g R(-p), the transpose */
  POSENC_INVERSE = 2,  /* R(-p) / g */
  POSENC_SHIFT = 3,    /* R(p): moves cached keys by p positions */
  POSENC_ROTATE_MODE_NONE = POSENC_NONE
} posenc_rotate_mode;

/* Layout of the columns of cosine and sine for n pairs. */
typedef enum posenc_row_layout {
  POSENC_HALF = 0,       /* n columns, one a pair */
  POSENC_DUPLICATED = 1, /* f0 .. fn-1, f0 .. fn-1 */
  POSENC_REPEATED = 2,   /* f0, f0, f1, f1 .. */
  POSENC_PAIRS = 3,      /* c0, s0, c1, s1 ..: of a table only */
  POSENC_ROW_LAYOUT_NONE = POSENC_NONE
} posenc_row_layout;

/* Whether cached keys can be moved, see rotary/rerotate.h. */
typedef enum posenc_verdict {
  POSENC_KEPT = 0,
  POSENC_MOVED = 1,
  POSENC_REFUSED = 2
} posenc_verdict;

/* A call whose largest position + 1 is a length for which the plan's frequencies are not valid. */
typedef enum posenc_outside {
  POSENC_OUTSIDE_REFUSE = 0,
  POSENC_OUTSIDE_ALLOW = 1, /* the caller knows that the length is right */
  POSENC_OUTSIDE_NONE = POSENC_NONE
} posenc_outside;

typedef enum posenc_severity {
  POSENC_NOTE = 0,
  POSENC_WARNING = 1,
  POSENC_ERROR = 2
} posenc_severity;

typedef struct posenc_plan posenc_plan;
typedef struct posenc_table posenc_table;
typedef struct posenc_snapshot posenc_snapshot;
typedef struct posenc_pope posenc_pope;   /* PoPE: not a rotation, the width doubles */
typedef struct posenc_model posenc_model; /* what a model's files state */

typedef struct posenc_plan_options {
  size_t struct_size;
  posenc_outside outside;
} posenc_plan_options;

typedef struct posenc_plan_info {
  size_t struct_size;
  int64_t head_dim;        /* channels of a head */
  int64_t axes;            /* position streams that a call must pass */
  int64_t blocks;          /* windows of a head that rotate; 0: none does */
  int64_t row_columns;     /* columns of posenc_rows */
  int64_t valid_from;      /* context lengths for which the plan is valid */
  int64_t valid_to;        /* INT64_MAX: no end */
  double attention_factor; /* gain of block 0 on cos and sin */
  double logit_factor;     /* on the softmax scale; the caller multiplies it in */
} posenc_plan_info;

/* What a reader found in a model's files. Texts are valid as long as the model. */
typedef struct posenc_finding {
  size_t struct_size;
  posenc_severity severity;
  const char* code; /* docs/doctor.md has a paragraph on each */
  const char* message;
  const char* where; /* a place in the file: "#/rope_scaling/factor" */
  const char* fix;   /* may be empty */
} posenc_finding;

/* Who runs the parts of a large call. `run` calls task(arg, i) once for each i of [0, n), on any
   thread, and returns when all are done. */
typedef struct posenc_executor {
  size_t struct_size;
  void* context;
  int64_t concurrency; /* how many tasks may run at once; calls are split into at most so many */
  void (*run)(void* context, int64_t n, void (*task)(void* arg, int64_t i), void* arg);
} posenc_executor;

/* "0.1.0" */
POSENC_API const char* posenc_version(void);

/* Instruction sets that this build and machine can run, worst first, separated by blanks, into
   `text` of `size` bytes. `needed` (may be null) gets the bytes that it takes. */
POSENC_API posenc_status posenc_isas(char* text, size_t size, size_t* needed, posenc_error* error);
/* Forces one; null: the best again. Existing plans do not change. */
POSENC_API posenc_status posenc_force_isa(const char* name, posenc_error* error);

/* Threads of the library's own pool, 1 to 1024, from the next call on; 0: the default again
   (POSENC_NUM_THREADS, or the cores that the process may use). */
POSENC_API posenc_status posenc_set_threads(int64_t threads, posenc_error* error);
/* The host's threads instead of the pool, for all calls from the next one on; null: the pool
   again. What `context` points to must live as long as calls may run. */
POSENC_API posenc_status posenc_set_executor(const posenc_executor* executor, posenc_error* error);

/* options of plans: null for the defaults.
   scheme: "rope head_dim=128 base=500000 pairing=half_split + linear factor=4". context: the length
   that rules of length go by, 0: not known. */
POSENC_API posenc_status posenc_plan_from_scheme(const char* scheme, int64_t context, posenc_dtype,
                                                 const posenc_plan_options* options,
                                                 posenc_plan** plan, posenc_error* error);
/* path: a config.json, a directory that holds one, or a .gguf file. context 0: the model's own. A
   layer without rotary is refused, and so is a model whose positions cannot be determined
   (POSENC_BAD_FILE): its findings say why, which posenc_model_read shows. */
POSENC_API posenc_status posenc_plan_from_model(const char* path, int64_t layer, int64_t context,
                                                posenc_dtype, const posenc_plan_options* options,
                                                posenc_plan** plan, posenc_error* error);

/* The same in steps: read once, a plan a layer. A model with errors among its findings is read all
   the same; only what is no JSON and no GGUF is POSENC_BAD_FILE here. */
POSENC_API posenc_status posenc_model_read(const char* path, int64_t context, posenc_model** model,
                                           posenc_error* error);
POSENC_API int64_t posenc_model_layers(const posenc_model* model);   /* 0 for null */
POSENC_API int64_t posenc_model_findings(const posenc_model* model); /* how many; 0 for null */
/* index: 0 to posenc_model_findings - 1. */
POSENC_API posenc_status posenc_model_finding(const posenc_model* model, int64_t index,
                                              posenc_finding* finding, posenc_error* error);
POSENC_API posenc_status posenc_plan_from_layer(const posenc_model* model, int64_t layer,
                                                posenc_dtype, const posenc_plan_options* options,
                                                posenc_plan** plan, posenc_error* error);
POSENC_API void posenc_model_free(posenc_model* model); /* null is allowed */

POSENC_API void posenc_plan_free(posenc_plan* plan); /* null is allowed */
POSENC_API posenc_status posenc_plan_describe(const posenc_plan* plan, posenc_plan_info* info,
                                              posenc_error* error);

/* layout: order of the axes of q and k: "thd" (rank 3), "bthd", "bhtd" or "tbhd" (rank 4).
   q or k may be null, not both. Positions of a length for which the plan does not hold
   (posenc_plan_info) are refused, unless its options allow them. q_out, k_out: null, or the input itself: in place; other overlap is
   refused. positions: [t], [b, t] or [axes, b, t] of int32, int64 or float64. */
POSENC_API posenc_status posenc_apply(const posenc_plan* plan, const char* layout,
                                      const PosencDLTensor* q, const PosencDLTensor* k,
                                      const PosencDLTensor* q_out, const PosencDLTensor* k_out,
                                      const PosencDLTensor* positions, posenc_rotate_mode,
                                      posenc_error* error);

/* Cosine and sine once for all layers of a step. rows: [batch * tokens, row_columns] of float32
   (float64 for plans of float64). */
POSENC_API posenc_status posenc_rows(const posenc_plan* plan, const PosencDLTensor* positions,
                                     const PosencDLTensor* rows, posenc_error* error);
POSENC_API posenc_status posenc_apply_rows(const posenc_plan* plan, const char* layout,
                                           const PosencDLTensor* q, const PosencDLTensor* k,
                                           const PosencDLTensor* q_out, const PosencDLTensor* k_out,
                                           const PosencDLTensor* rows, posenc_rotate_mode,
                                           posenc_error* error);

/* Any cosines and sines, which need not be a rotation: [tokens, columns], [batch, tokens,
   columns] or [batch, tokens, heads, columns] of float32 or the plan's dtype. index (may be null):
   the row of each token, [t] or [b, t] of int32 or int64. */
POSENC_API posenc_status posenc_apply_caller_rows(
    const posenc_plan* plan, const char* layout, const PosencDLTensor* q, const PosencDLTensor* k,
    const PosencDLTensor* q_out, const PosencDLTensor* k_out, const PosencDLTensor* cos,
    const PosencDLTensor* sin, posenc_row_layout, const PosencDLTensor* index, posenc_rotate_mode,
    posenc_error* error);

/* Gradients with respect to the phase, added to the contents; null: not computed. float64:
   frequency [heads or 1, axes, pairs] of block `block`, gain [1], position [axes, batch, tokens]. q
   and k before the turn, d_q and d_k the gradients of what came out. workspace: as many bytes as
   posenc_phase_gradients_workspace says. The same for any number of threads. */
POSENC_API posenc_status posenc_phase_gradients_workspace(const posenc_plan* plan,
                                                          const char* layout,
                                                          const PosencDLTensor* q,
                                                          const PosencDLTensor* k, size_t* bytes,
                                                          posenc_error* error);
POSENC_API posenc_status posenc_phase_gradients(
    const posenc_plan* plan, const char* layout, const PosencDLTensor* q, const PosencDLTensor* k,
    const PosencDLTensor* d_q, const PosencDLTensor* d_k, const PosencDLTensor* positions,
    int64_t block, const PosencDLTensor* frequency, const PosencDLTensor* gain,
    const PosencDLTensor* position, void* workspace, size_t workspace_bytes, posenc_error* error);
/* Gradients of the caller's cosines and sines, in their shapes, float64 or float32, added. */
POSENC_API posenc_status posenc_row_gradients(const posenc_plan* plan, const char* layout,
                                              const PosencDLTensor* q, const PosencDLTensor* k,
                                              const PosencDLTensor* d_q, const PosencDLTensor* d_k,
                                              const PosencDLTensor* cos, const PosencDLTensor* sin,
                                              posenc_row_layout, const PosencDLTensor* index,
                                              const PosencDLTensor* d_cos,
                                              const PosencDLTensor* d_sin, posenc_error* error);

/* Cached keys, in place, from one plan's positions to another's. Rejected if the verdict is
   refused. reason (may be null) gets the sentence that goes with the verdict. */
POSENC_API posenc_status posenc_can_rerotate(const posenc_plan* from, const posenc_plan* to,
                                             posenc_verdict* verdict, posenc_error* reason,
                                             posenc_error* error);
POSENC_API posenc_status posenc_rerotate(const posenc_plan* from, const posenc_plan* to,
                                         const char* layout, const PosencDLTensor* keys,
                                         const PosencDLTensor* old_positions,
                                         const PosencDLTensor* new_positions, posenc_error* error);

/* Rows of positions 0 .. count - 1 kept for all batches and layers, in float32, float16 or bfloat16
   and any layout: a kernel of the caller's own may read them (posenc_table_snapshot), and
   posenc_apply_table reads POSENC_HALF fastest. More positions than the plan holds for are refused,
   more memory than the machine has is POSENC_OUT_OF_MEMORY before anything is filled. grows != 0: a position beyond the end extends it,
   else it is refused. */
POSENC_API posenc_status posenc_table_create(const posenc_plan* plan, int64_t count, posenc_dtype,
                                             posenc_row_layout, int grows, posenc_table** table,
                                             posenc_error* error);
POSENC_API posenc_status posenc_table_grow(posenc_table* table, int64_t count, posenc_error* error);
/* Rows of another plan's spec, as many, published in one step. Rejected: other heads, axes or
   pairs. */
POSENC_API posenc_status posenc_table_replace(posenc_table* table, const posenc_plan* plan,
                                              posenc_error* error);
/* To .npy or .safetensors by the ending, complete or not at all. */
POSENC_API posenc_status posenc_table_save(const posenc_table* table, const char* path,
                                           posenc_row_layout, posenc_error* error);
/* Loads such a file by mmap; the plan must be the one it was made with, the layout the file's
   (.safetensors says it and another one is refused; .npy does not). */
POSENC_API posenc_status posenc_table_map(const char* path, const posenc_plan* plan,
                                          posenc_row_layout, int grows, posenc_table** table,
                                          posenc_error* error);
POSENC_API int64_t posenc_table_size(const posenc_table* table); /* 0 for null */
/* The current rows, for reading: [size, columns], a block's cosines and sines after the
   other's, of each [heads, pairs] as the layout has them. `rows` is filled in; it is valid until
   the snapshot is freed, whatever happens to the table, and must not be written. */
POSENC_API posenc_status posenc_table_snapshot(const posenc_table* table,
                                               posenc_snapshot** snapshot, PosencDLTensor* rows,
                                               posenc_error* error);
POSENC_API void posenc_snapshot_free(posenc_snapshot* snapshot); /* null is allowed */
POSENC_API posenc_status posenc_apply_table(const posenc_plan* plan, const char* layout,
                                            const PosencDLTensor* q, const PosencDLTensor* k,
                                            const PosencDLTensor* q_out,
                                            const PosencDLTensor* k_out, const posenc_table* table,
                                            const PosencDLTensor* positions, posenc_rotate_mode,
                                            posenc_error* error);
POSENC_API void posenc_table_free(posenc_table* table); /* null is allowed */

/* scheme: "pope head_dim=128 base=10000" and scalings. in [.., d] and out [.., 2 d] in one
   layout, apart from each other; bias (null for queries): [heads, d] of float32 or float64. */
POSENC_API posenc_status posenc_pope_from_scheme(const char* scheme, int64_t context, posenc_dtype,
                                                 const posenc_plan_options* options,
                                                 posenc_pope** pope, posenc_error* error);
POSENC_API void posenc_pope_free(posenc_pope* pope); /* null is allowed */
POSENC_API posenc_status posenc_pope_apply(const posenc_pope* pope, const char* layout,
                                           const PosencDLTensor* in, const PosencDLTensor* out,
                                           const PosencDLTensor* positions,
                                           const PosencDLTensor* bias, posenc_error* error);
/* d_in is overwritten; d_bias (may be null) is float64 and accumulated. */
POSENC_API posenc_status posenc_pope_gradient(const posenc_pope* pope, const char* layout,
                                              const PosencDLTensor* in, const PosencDLTensor* d_out,
                                              const PosencDLTensor* positions,
                                              const PosencDLTensor* bias,
                                              const PosencDLTensor* d_in,
                                              const PosencDLTensor* d_bias, posenc_error* error);

#ifdef __cplusplus
}
#endif

#include "posenc/attention/attention_c.h"
#endif
