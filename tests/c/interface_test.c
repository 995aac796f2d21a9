/* SPDX-License-Identifier: Apache-2.0 */
/* Every call of posenc_c.h, from C11 (the other half in rows_test.c): the worked example of the
   paper's rotation, its senses, rows, tables, a model's file, and what wrong arguments get. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention_test.h"
#include "posenc/posenc_c.h"
#include "rows_test.h"
#include "structs_test.h"

static int failures = 0;

static void check(int ok, const char* what, int line) {
  if (ok) return;
  ++failures;
  fprintf(stderr, "line %d: %s\n", line, what);
}
#define CHECK(x) check((x), #x, __LINE__)
static void check_ok(posenc_status s, const posenc_error* e, const char* what, int line) {
  if (s != POSENC_OK) fprintf(stderr, "%s\n", e->message);
  check(s == POSENC_OK, what, line);
}
#define OK(x) check_ok((x), &error, #x, __LINE__)

typedef struct {
  PosencDLTensor t;
  int64_t shape[4];
} Tensor;

static PosencDLTensor* tensor(Tensor* x, void* data, uint8_t code, uint8_t bits, int rank,
                              const int64_t* shape) {
  memset(x, 0, sizeof *x);
  for (int i = 0; i < rank; ++i) x->shape[i] = shape[i];
  x->t.data = data;
  x->t.device.device_type = 1;
  x->t.ndim = rank;
  x->t.dtype.code = code;
  x->t.dtype.bits = bits;
  x->t.dtype.lanes = 1;
  x->t.shape = x->shape;
  return &x->t;
}

static double worst(const float* a, const float* b, int n) {
  double w = 0;
  for (int i = 0; i < n; ++i) {
    const double d = fabs((double)a[i] - (double)b[i]);
    if (!(d <= w)) w = d;
  }
  return w;
}

static const char* const kPlain = "rope head_dim=8 base=10000 pairing=half_split";

static posenc_plan* plan_of(const char* scheme, posenc_dtype dtype) {
  posenc_error error = {.struct_size = sizeof error};
  posenc_plan* plan = NULL;
  OK(posenc_plan_from_scheme(scheme, 0, dtype, NULL, &plan, &error));
  return plan;
}

/* x = [1 .. 8] at position 3: pair i turns by 3 * 10000^(-2i/8). */
static void worked_example(void) {
  posenc_error error = {.struct_size = sizeof error};
  posenc_plan* plan = plan_of(kPlain, POSENC_F32);
  float x[8], want[8], out[8];
  for (int i = 0; i < 8; ++i) x[i] = (float)(i + 1);
  for (int i = 0; i < 4; ++i) {
    const double angle = 3 * pow(10000, -2.0 * i / 8);
    want[i] = (float)((i + 1) * cos(angle) - (i + 5) * sin(angle));
    want[i + 4] = (float)((i + 5) * cos(angle) + (i + 1) * sin(angle));
  }
  int64_t three = 3;
  Tensor q, o, p;
  const int64_t shape[3] = {1, 1, 8}, one[1] = {1};
  tensor(&q, x, 2, 32, 3, shape);
  tensor(&o, out, 2, 32, 3, shape);
  tensor(&p, &three, 0, 64, 1, one);
  OK(posenc_apply(plan, "thd", &q.t, NULL, &o.t, NULL, &p.t, POSENC_FORWARD, &error));
  CHECK(worst(out, want, 8) < 3e-6);
  OK(posenc_apply(plan, "thd", &o.t, NULL, NULL, NULL, &p.t, POSENC_INVERSE, &error));
  CHECK(worst(out, x, 8) < 3e-6);
  posenc_plan_info info = {.struct_size = sizeof info};
  OK(posenc_plan_describe(plan, &info, &error));
  CHECK(info.head_dim == 8 && info.axes == 1 && info.blocks == 1 && info.row_columns == 8);
  CHECK(info.attention_factor == 1 && info.logit_factor == 1 && info.valid_to == INT64_MAX);
  posenc_plan_free(plan);
}

/* With a gain the four senses are four things; rows and a table give what apply gives. */
static void senses_rows_and_tables(void) {
  enum { kTokens = 5, kHeads = 2, kDim = 8, kSize = kTokens * kHeads * kDim };
  posenc_error error = {.struct_size = sizeof error};
  posenc_plan* plan =
      plan_of("rope head_dim=8 base=10000 pairing=interleaved + yarn factor=4 original_context=256",
              POSENC_F32);
  posenc_plan_info info = {.struct_size = sizeof info};
  OK(posenc_plan_describe(plan, &info, &error));
  const float gain = (float)info.attention_factor;
  CHECK(fabs(info.attention_factor - 1.138629436111989) < 1e-15);
  float x[kSize], a[kSize], b[kSize], keys[kSize];
  for (int i = 0; i < kSize; ++i) x[i] = keys[i] = sinf((float)i);
  int32_t where[kTokens] = {0, 1, 7, 100, 31};
  Tensor q, k, ta, tb, p, rows;
  const int64_t shape[3] = {kTokens, kHeads, kDim}, tokens[1] = {kTokens}, rs[2] = {kTokens, 8};
  tensor(&q, x, 2, 32, 3, shape);
  tensor(&k, keys, 2, 32, 3, shape);
  tensor(&ta, a, 2, 32, 3, shape);
  tensor(&tb, b, 2, 32, 3, shape);
  tensor(&p, where, 0, 32, 1, tokens);
  /* shift = forward / gain */
  OK(posenc_apply(plan, "thd", &q.t, NULL, &ta.t, NULL, &p.t, POSENC_FORWARD, &error));
  OK(posenc_apply(plan, "thd", &q.t, NULL, &tb.t, NULL, &p.t, POSENC_SHIFT, &error));
  for (int i = 0; i < kSize; ++i) b[i] *= gain;
  CHECK(worst(a, b, kSize) < 1e-6);
  /* gradient = inverse * gain^2 */
  OK(posenc_apply(plan, "thd", &q.t, NULL, &ta.t, NULL, &p.t, POSENC_GRADIENT, &error));
  OK(posenc_apply(plan, "thd", &q.t, NULL, &tb.t, NULL, &p.t, POSENC_INVERSE, &error));
  for (int i = 0; i < kSize; ++i) b[i] *= gain * gain;
  CHECK(worst(a, b, kSize) < 1e-6);
  /* rows; keys in place */
  float table_rows[kTokens * 8];
  tensor(&rows, table_rows, 2, 32, 2, rs);
  OK(posenc_rows(plan, &p.t, &rows.t, &error));
  OK(posenc_apply_rows(plan, "thd", &q.t, &k.t, &ta.t, NULL, &rows.t, POSENC_FORWARD, &error));
  CHECK(memcmp(a, keys, sizeof a) == 0);
  OK(posenc_apply(plan, "thd", &q.t, NULL, &tb.t, NULL, &p.t, POSENC_FORWARD, &error));
  CHECK(worst(a, b, kSize) < 5e-7);
  /* a table, grown */
  posenc_table* table = NULL;
  OK(posenc_table_create(plan, 64, POSENC_F32, POSENC_HALF, 0, &table, &error));
  CHECK(posenc_table_size(table) == 64 && posenc_table_size(NULL) == 0);
  CHECK(posenc_apply_table(plan, "thd", &q.t, NULL, &ta.t, NULL, table, &p.t, POSENC_FORWARD,
                           &error) == POSENC_INVALID_ARGUMENT);
  OK(posenc_table_grow(table, 101, &error));
  CHECK(posenc_table_size(table) >= 101);
  OK(posenc_apply_table(plan, "thd", &q.t, NULL, &ta.t, NULL, table, &p.t, POSENC_FORWARD, &error));
  CHECK(worst(a, b, kSize) < 5e-7);
  posenc_table_free(table);
  posenc_table_free(NULL);
  posenc_plan_free(plan);
  posenc_plan_free(NULL);
}

static void model_files(void) {
  posenc_error error = {.struct_size = sizeof error};
  const char* const kFiles = POSENC_SOURCE_DIR "/conformance/gguf/files/";
  char path[1024];
  posenc_plan* plan = NULL;
  posenc_plan_info info = {.struct_size = sizeof info};
  snprintf(path, sizeof path, "%sqwen25_yarn.gguf", kFiles);
  OK(posenc_plan_from_model(path, 3, 0, POSENC_BF16, NULL, &plan, &error));
  OK(posenc_plan_describe(plan, &info, &error));
  CHECK(info.head_dim == 128 && fabs(info.attention_factor - 1.138629436111989) < 1e-15);
  posenc_plan_free(plan);
  plan = NULL;
  CHECK(posenc_plan_from_model(path, 1000, 0, POSENC_F32, NULL, &plan, &error) ==
        POSENC_INVALID_ARGUMENT);
  snprintf(path, sizeof path, "%svalue_freq_base_nan.gguf", kFiles);
  CHECK(posenc_plan_from_model(path, 0, 0, POSENC_F32, NULL, &plan, &error) == POSENC_BAD_FILE);
  CHECK(strstr(error.message, "llama.rope.freq_base") != NULL);
  snprintf(path, sizeof path, "%sgpt2.gguf", kFiles);
  CHECK(posenc_plan_from_model(path, 0, 0, POSENC_F32, NULL, &plan, &error) ==
        POSENC_INVALID_ARGUMENT);
  CHECK(posenc_plan_from_model("/nonexistent.gguf", 0, 0, POSENC_F32, NULL, &plan, &error) ==
        POSENC_BAD_FILE);
  CHECK(plan == NULL);
}

static void wrong_arguments(void) {
  posenc_error error = {.struct_size = sizeof error};
  posenc_plan* plan = NULL;
  CHECK(posenc_plan_from_scheme("rope head_dim=7 pairing=half_split", 0, POSENC_F32, NULL, &plan,
                                &error) == POSENC_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "7") != NULL && plan == NULL);
  CHECK(posenc_plan_from_scheme("nonsense", 0, POSENC_F32, NULL, &plan, NULL) ==
        POSENC_INVALID_ARGUMENT);
  CHECK(posenc_plan_from_scheme(NULL, 0, POSENC_F32, NULL, &plan, &error) ==
        POSENC_INVALID_ARGUMENT);
  CHECK(posenc_plan_from_scheme(kPlain, -1, POSENC_F32, NULL, &plan, &error) ==
        POSENC_INVALID_ARGUMENT);
  CHECK(posenc_plan_from_scheme(kPlain, 0, POSENC_F32, NULL, NULL, &error) ==
        POSENC_INVALID_ARGUMENT);
  /* A text longer than the message is cut, not overrun. */
  char* text = malloc(4096);
  CHECK(text != NULL);
  memset(text, 'x', 4095);
  text[4095] = '\0';
  CHECK(posenc_plan_from_scheme(text, 0, POSENC_F32, NULL, &plan, &error) ==
        POSENC_INVALID_ARGUMENT);
  CHECK(strlen(error.message) < sizeof error.message);
  free(text);

  plan = plan_of(kPlain, POSENC_F32);
  float x[8] = {0};
  int64_t at = 0;
  const int64_t shape[3] = {1, 1, 8}, one[1] = {1};
  Tensor q, p;
  tensor(&q, x, 2, 32, 3, shape);
  tensor(&p, &at, 0, 64, 1, one);
  const posenc_rotate_mode f = POSENC_FORWARD;
  CHECK(posenc_apply(plan, "thd", NULL, NULL, NULL, NULL, &p.t, f, &error) != POSENC_OK);
  CHECK(posenc_apply(plan, "htx", &q.t, NULL, NULL, NULL, &p.t, f, &error) != POSENC_OK);
  CHECK(posenc_apply(plan, "bthd", &q.t, NULL, NULL, NULL, &p.t, f, &error) != POSENC_OK);
  CHECK(posenc_apply(NULL, "thd", &q.t, NULL, NULL, NULL, &p.t, f, &error) != POSENC_OK);
  CHECK(posenc_apply(plan, NULL, &q.t, NULL, NULL, NULL, &p.t, f, &error) != POSENC_OK);
  CHECK(posenc_apply(plan, "thd", &q.t, NULL, NULL, NULL, NULL, f, &error) != POSENC_OK);
  CHECK(posenc_apply(plan, "thd", &q.t, NULL, NULL, &q.t, &p.t, f, &error) != POSENC_OK);
  CHECK(posenc_apply(plan, "thd", &q.t, NULL, NULL, NULL, &p.t, (posenc_rotate_mode)9, &error) !=
        POSENC_OK);
  CHECK(posenc_apply(plan, "thd", &q.t, NULL, NULL, NULL, &p.t, (posenc_rotate_mode)-1, &error) !=
        POSENC_OK);
  posenc_plan* none = NULL;
  CHECK(posenc_plan_from_scheme("rope head_dim=8 pairing=half_split", 0, (posenc_dtype)99, NULL,
                                &none, &error) != POSENC_OK);
  CHECK(strstr(error.message, "posenc_dtype, got 99") != NULL && none == NULL);
  q.t.dtype.lanes = 4;
  CHECK(posenc_apply(plan, "thd", &q.t, NULL, NULL, NULL, &p.t, f, &error) != POSENC_OK);
  q.t.dtype.lanes = 1;
  q.t.device.device_type = 2; /* CUDA memory */
  CHECK(posenc_apply(plan, "thd", &q.t, NULL, NULL, NULL, &p.t, f, &error) != POSENC_OK);
  q.t.device.device_type = 1;
  p.t.device.device_type = 2;
  CHECK(posenc_apply(plan, "thd", &q.t, NULL, NULL, NULL, &p.t, f, &error) != POSENC_OK);
  CHECK(strstr(error.message, "CPU") != NULL);
  p.t.device.device_type = 1;
  posenc_plan_free(plan);
}

/* Positions [1, tokens], as PyTorch hands them over, serve every sequence of a batch. */
static void one_row_for_a_batch(void) {
  enum { kBatch = 3, kTokens = 2, kDim = 8, kRow = kTokens * kDim };
  posenc_error error = {.struct_size = sizeof error};
  posenc_plan* plan = plan_of(kPlain, POSENC_F32);
  float x[kBatch * kRow], want[kBatch * kRow];
  for (int i = 0; i < kBatch * kRow; ++i) x[i] = want[i] = sinf((float)i);
  int64_t where[kTokens] = {5, 11};
  Tensor q, p;
  const int64_t all[4] = {kBatch, kTokens, 1, kDim}, row[2] = {1, kTokens};
  tensor(&p, where, 0, 64, 2, row);
  int64_t strides[2] = {kTokens, 1};
  p.t.strides = strides;
  tensor(&q, x, 2, 32, 4, all);
  OK(posenc_apply(plan, "bthd", &q.t, NULL, NULL, NULL, &p.t, POSENC_FORWARD, &error));
  for (int b = 0; b < kBatch; ++b) {
    tensor(&q, want + b * kRow, 2, 32, 3, all + 1);
    OK(posenc_apply(plan, "thd", &q.t, NULL, NULL, NULL, &p.t, POSENC_FORWARD, &error));
  }
  CHECK(memcmp(x, want, sizeof x) == 0);
  posenc_plan_free(plan);
}

static void instruction_sets(void) {
  posenc_error error = {.struct_size = sizeof error};
  size_t needed = 0;
  CHECK(strlen(posenc_version()) >= 5);
  OK(posenc_isas(NULL, 0, &needed, &error));
  char* text = malloc(needed);
  CHECK(text != NULL && needed > 1);
  OK(posenc_isas(text, needed, NULL, &error));
  CHECK(strlen(text) + 1 == needed && strstr(text, "scalar") == text);
  CHECK(posenc_isas(text, needed - 1, NULL, &error) == POSENC_INVALID_ARGUMENT);
  OK(posenc_force_isa("scalar", &error));
  worked_example();
  OK(posenc_force_isa(NULL, &error));
  CHECK(posenc_force_isa("mmx", &error) == POSENC_INVALID_ARGUMENT);
  free(text);
}

int main(void) {
  worked_example();
  senses_rows_and_tables();
  model_files();
  wrong_arguments();
  one_row_for_a_batch();
  instruction_sets();
  failures += rows_gradients_caches_and_files();
  failures += test_rerotation();
  failures += structs_executors_and_findings();
  failures += attention_by_name();
  if (failures != 0) fprintf(stderr, "%d checks failed\n", failures);
  return failures != 0;
}
