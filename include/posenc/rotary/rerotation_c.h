/* SPDX-License-Identifier: Apache-2.0 */
/* Cached keys that move, in C (rotary/rerotation_plan.h). A move is kept (the stored numbers stay), moved
   (each is rewritten once, within a bound) or refused (POSENC_INVALID_ARGUMENT, with the reason); no
   move gives the keys that a model would recompute. Stable like posenc_c.h. */
#ifndef POSENC_ROTARY_REROTATION_C_H
#define POSENC_ROTARY_REROTATION_C_H

#include "posenc/posenc_c.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct posenc_rerotation posenc_rerotation;

/* How keys are stored. Tensors of q8_0 are uint8: head size / 32 blocks of 34 bytes on the last axis. */
typedef enum posenc_key_type {
  POSENC_KEYS_F64 = 0,
  POSENC_KEYS_F32 = 1,
  POSENC_KEYS_F16 = 2,
  POSENC_KEYS_BF16 = 3,
  POSENC_KEYS_Q8_0 = 4,
  POSENC_KEY_TYPE_NONE = POSENC_NONE
} posenc_key_type;

/* From the rotation of one plan to that of another, whatever the dtype of the plans. The plans may be
   freed afterwards. cut_blocks: not 0 to rewrite q8_0 blocks that the rotated window cuts. */
POSENC_API posenc_status posenc_rerotation_create(const posenc_plan* from, const posenc_plan* to,
                                                  posenc_key_type type, int cut_blocks,
                                                  posenc_rerotation** rerotation,
                                                  posenc_error* error);
POSENC_API void posenc_rerotation_free(posenc_rerotation* rerotation); /* null is allowed */
/* The largest error of a pair after so many moves, see RerotationPlan::bound. */
POSENC_API posenc_status posenc_rerotation_bound(const posenc_rerotation* rerotation, int64_t moves,
                                                 double* bound, posenc_error* error);

/* Moves keys, in place if out is null. layout: "bthd", "thd", ... Positions of each token, as in
   posenc_apply. verdict (may be null): kept if no key changed, else moved. */
POSENC_API posenc_status posenc_rerotation_move(const posenc_rerotation* rerotation,
                                                const char* layout, const PosencDLTensor* keys,
                                                const PosencDLTensor* out,
                                                const PosencDLTensor* old_positions,
                                                const PosencDLTensor* new_positions,
                                                posenc_verdict* verdict, posenc_error* error);

/* Pages of a pool [pages, page size, heads, head size] ("bthd") or [pages, heads, page size, head size]
   ("bhtd"). */
typedef struct posenc_key_pages {
  size_t struct_size;
  const int64_t* pages; /* `count` numbers of the pages that are read */
  size_t count;
  const int64_t* out;    /* and written; null: the same */
  const int64_t* tokens; /* used slots of each, from its first; null: all */
} posenc_key_pages;

/* Positions: [count, page size], one for each slot; or [count, 1], of the first slot of each page; with
   several axes [axes, count, ...]. out_pool null: in the pool itself. */
POSENC_API posenc_status posenc_rerotation_move_pages(
    const posenc_rerotation* rerotation, const char* layout, const PosencDLTensor* pool,
    const PosencDLTensor* out_pool, const posenc_key_pages* pages,
    const PosencDLTensor* old_positions, const PosencDLTensor* new_positions,
    posenc_verdict* verdict, posenc_error* error);

#ifdef __cplusplus
}
#endif

#endif
