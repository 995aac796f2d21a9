/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of attention share: one call of a few tokens, in double. */
#ifndef POSENC_TESTS_C_ATTENTION_WORLD_H_
#define POSENC_TESTS_C_ATTENTION_WORLD_H_
#include "posenc/posenc_c.h"

enum { T = 5, H = 2, D = 4, N = T * H * D, BUCKETS = 8 };
extern int attention_failures;
extern posenc_error error;
extern double q[N], k[N], v[N], out[N], lse[H * T], table[BUCKETS * H];
extern int64_t at[T];
extern int64_t of_table[2], of_lse[3], of_positions[1];

void check(int ok, const char* what, const char* file, int line);
#define CHECK(x) check((x), #x, __FILE__, __LINE__)
#define OK(x) check((x) == POSENC_OK, #x, __FILE__, __LINE__)
#define REFUSED(x, says)                                                                     \
  check((x) == POSENC_INVALID_ARGUMENT && strstr(error.message, says) != NULL, #x, __FILE__, \
        __LINE__)

PosencDLTensor dense(void* data, int code, int bits, int rank, int64_t* shape);
PosencDLTensor heads(double* x);
/* out and lse against a loop over the keys, under a causal mask. */
typedef double score_function(int h, int i, int j);
void against_a_loop(score_function* score);
/* sum(out * cos(3 i)) */
double loss(const posenc_attention* a, const posenc_attention_call* call);

/* Keys as two parts, forward and backward, of a call with T5's table. */
void attention_parts(posenc_attention* a, posenc_attention_call call);
void attention_regions(void);

#endif
