/* SPDX-License-Identifier: Apache-2.0 */
/* The part of posenc_c.h that is attention, which includes it. */
#ifndef POSENC_ATTENTION_ATTENTION_C_H
#define POSENC_ATTENTION_ATTENTION_C_H

#include "posenc/posenc_c.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Attention with position terms (attention/plan.h), in float or double. Arrays of a scheme go by
   name; posenc_attention_array lists them. */
typedef struct posenc_attention posenc_attention;
typedef struct posenc_attention_sizes {
  size_t struct_size;
  int64_t heads, head_dim;
  int64_t key_heads; /* 0: as heads */
  int64_t value_dim; /* 0: as head_dim */
  int has_scale;     /* 1: use scale, also 0; 0: what the schemes require, else head_dim^-1/2 */
  double scale;      /* on q.k */
  int64_t context;   /* length for length rules; 0: not known */
} posenc_attention_sizes;

/* An array that the schemes learn or read of each call. Texts live as long as the plan. In a shape
   -1 is the batch (or 1), -2 the queries, -3 the keys. */
typedef struct posenc_attention_array_info {
  size_t struct_size;
  const char* name;
  int is_input;   /* 0: learned */
  int is_integer; /* int64 or int32, else float64 or float32 */
  int is_optional;
  int64_t rank, shape[5];
} posenc_attention_array_info;
typedef struct posenc_named_tensor {
  const char* name;
  const PosencDLTensor* tensor;
} posenc_named_tensor;

/* Pairs whose score reads another q and k (Self-Extend, ReRoPE, dual chunk): those with
   floor(query position / chunk) - floor(key position / chunk) from low to high on `axis` of the call's
   positions. The first region that contains a pair applies. Either q and k, as prepared, of the shapes of the
   call's (k of any heads, without pages), or query_positions and key_positions: the call's own q and k are
   rotated by these instead. */
typedef struct posenc_score_region {
  size_t struct_size;
  int64_t chunk, low, high; /* chunk at least 1; low INT64_MIN and high INT64_MAX: no end */
  int64_t axis;
  const PosencDLTensor *q, *k;
  const PosencDLTensor *query_positions, *key_positions;
  const posenc_plan* rotation; /* for positions; null: the rotary one of the schemes */
  const PosencDLTensor *d_q,
      *d_k; /* null, or where the backward pass adds the gradients of q and k */
} posenc_score_region;

/* Null: absent. Shapes are those of attention/attention.h. */
typedef struct posenc_attention_call {
  size_t struct_size;
  const char* layout; /* of q, k, v, out and their gradients: thd, bthd, bhtd or tbhd */
  const PosencDLTensor *q, *k, *v;                       /* k and v in uint8: q8_0 blocks */
  const PosencDLTensor *query_positions, *key_positions; /* null: order */
  int causal;
  int64_t query_offset; /* order of the first query among the keys */
  int has_window;       /* 1: use window_left and window_right */
  int64_t window_left, window_right;
  int64_t chunk, sink_tokens;
  double softcap;
  const PosencDLTensor *visible, *bias, *key_visible, *key_length, *prefix;
  const PosencDLTensor *query_document, *key_document, *query_cu_seqlens, *key_cu_seqlens;
  const PosencDLTensor *block_table, *sink, *query_factor;
  int softcap_after_terms; /* 1: q.k and the schemes' terms are capped together, bias is not */
  const PosencDLTensor *query_order, *key_order; /* [1 or b, t]: orders that differ from storage */
  const PosencDLTensor* chunk_origin;  /* [1 or b, groups of heads]: order at which chunks start */
  const PosencDLTensor* query_offsets; /* [1 or b], or one a sequence: added to query_offset */
  const PosencDLTensor *head_scale, *head_side, *mix_before, *mix_after;
  int exact; /* 1: the engine in double, even if a faster one supports the call */
  const posenc_score_region* regions; /* the struct_size of the first is that of all */
  size_t region_count;
  /* The rest is of the backward pass; forward rejects it. The log-sum-exp that belongs to out (null: computed
     again), and its gradient (null: none). */
  const PosencDLTensor *log_sum_exp, *d_log_sum_exp;
  int whole; /* 1: out and log_sum_exp, float64, are of more keys than the call's, as merge gives them */
} posenc_attention_call;
/* With block_table, [rows, pages a row], k and v are [pages, page size, heads, channels]. */

/* schemes: SCHEME texts, at most one rotary; count may be 0. */
POSENC_API posenc_status posenc_attention_create(const char* const* schemes, size_t count,
                                                 const posenc_attention_sizes* sizes,
                                                 posenc_attention** attention, posenc_error* error);
POSENC_API void posenc_attention_free(posenc_attention* attention);            /* null is allowed */
POSENC_API int64_t posenc_attention_arrays(const posenc_attention* attention); /* 0 for null */
POSENC_API posenc_status posenc_attention_array(const posenc_attention* attention, int64_t index,
                                                posenc_attention_array_info* info,
                                                posenc_error* error);
/* Copies the learned arrays for calls at such positions; again whenever they change. Not while another
   thread uses the plan. Schemes that learn nothing and do not depend on distances need no such call. */
POSENC_API posenc_status posenc_attention_lower(posenc_attention* attention,
                                                const posenc_named_tensor* parameters, size_t count,
                                                const PosencDLTensor* query_positions,
                                                const PosencDLTensor* key_positions,
                                                posenc_error* error);
/* Writes out (in the dtype of q) and log_sum_exp (null: not computed; [batch, heads, queries]). */
POSENC_API posenc_status posenc_attention_forward(const posenc_attention* attention,
                                                  const posenc_attention_call* call,
                                                  const posenc_named_tensor* inputs, size_t count,
                                                  const PosencDLTensor* out,
                                                  const PosencDLTensor* log_sum_exp,
                                                  posenc_error* error);
/* Adds the gradients of sum(out * d_out) + sum(log_sum_exp * call.d_log_sum_exp) to d_q, d_k, d_v (null: not
   computed), to those of regions and to the arrays named in `gradients`, all float64 or float32. With call.whole the
   keys are a part of all, and the gradients are the call's share of those of the whole. */
POSENC_API posenc_status posenc_attention_backward(
    const posenc_attention* attention, const posenc_attention_call* call,
    const posenc_named_tensor* inputs, size_t input_count, const PosencDLTensor* out,
    const PosencDLTensor* d_out, const PosencDLTensor* d_q, const PosencDLTensor* d_k,
    const PosencDLTensor* d_v, const posenc_named_tensor* gradients, size_t gradient_count,
    posenc_error* error);

/* Joins `count` results over disjoint keys (log_sum_exp null: not computed); not for calls with gates,
   kernels over keys or mixed heads. stick_breaking: parts from the last keys on, else softmax. */
POSENC_API posenc_status posenc_attention_merge(
    const char* layout, const PosencDLTensor* const* outs,
    const PosencDLTensor* const* log_sum_exps, size_t count, int stick_breaking,
    const PosencDLTensor* out, const PosencDLTensor* log_sum_exp, posenc_error* error);
/* out and log_sum_exp: what merge wrote. Adds the gradients of sum(out * d_out) + sum(log_sum_exp *
   d_log_sum_exp), whose second part may be null, to d_outs and d_log_sum_exps, float64 or float32;
   a null among them is not wanted. */
POSENC_API posenc_status posenc_attention_merge_backward(
    const char* layout, const PosencDLTensor* const* outs,
    const PosencDLTensor* const* log_sum_exps, size_t count, int stick_breaking,
    const PosencDLTensor* out, const PosencDLTensor* log_sum_exp, const PosencDLTensor* d_out,
    const PosencDLTensor* d_log_sum_exp, const PosencDLTensor* const* d_outs,
    const PosencDLTensor* const* d_log_sum_exps, posenc_error* error);

#ifdef __cplusplus
}
#endif
#endif
