/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes of structs, old and absurd; the host's threads; why a model cannot be read; plans outside
   their lengths; tables that no machine holds. */
#include "structs_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "posenc/posenc_c.h"

static int failures = 0;
static posenc_error error = {.struct_size = sizeof(posenc_error)};

static void check(int ok, const char* what, int line) {
  if (ok) return;
  ++failures;
  fprintf(stderr, "structs_test.c line %d: %s (%s)\n", line, what, error.message);
}
#define CHECK(x) check((x), #x, __LINE__)
#define OK(x) check((x) == POSENC_OK, #x, __LINE__)
#define REFUSED(x) check((x) == POSENC_INVALID_ARGUMENT, #x, __LINE__)

static const char* const kPlain = "rope head_dim=8 base=10000 pairing=half_split";
/* Two lists: the short one holds up to a length of 16. */
static const char* const kTwoLists =
    "rope head_dim=8 pairing=half_split + longrope short_factor=[1,1,1,1] long_factor=[1,1.5,3,4] "
    "original_context=16 factor=4 switch_rule=per_call";

static void sizes(void) {
  posenc_plan* plan = NULL;
  OK(posenc_plan_from_scheme(kPlain, 0, POSENC_F32, NULL, &plan, &error));
  /* A program that was compiled when the struct ended behind blocks: what lies there is its own. */
  posenc_plan_info info;
  memset(&info, 0x5a, sizeof info);
  info.struct_size = offsetof(posenc_plan_info, row_columns);
  const int64_t untouched = info.row_columns;
  OK(posenc_plan_describe(plan, &info, &error));
  CHECK(info.head_dim == 8 && info.axes == 1 && info.blocks == 1);
  CHECK(info.row_columns == untouched &&
        info.struct_size == offsetof(posenc_plan_info, row_columns));
  /* One that will have more: it is 0 here. */
  struct {
    posenc_plan_info info;
    int64_t later;
  } more;
  memset(&more, 0x5a, sizeof more);
  more.info.struct_size = sizeof more;
  OK(posenc_plan_describe(plan, &more.info, &error));
  CHECK(more.info.logit_factor == 1 && more.later == 0);
  const size_t absurd[] = {0, 1, sizeof(size_t), (size_t)1 << 40, (size_t)-1};
  for (size_t i = 0; i < sizeof absurd / sizeof *absurd; ++i) {
    info.struct_size = absurd[i];
    REFUSED(posenc_plan_describe(plan, &info, &error));
    CHECK(strstr(error.message, "info.struct_size must be the size of the struct") != NULL);
    posenc_plan_options options = {.struct_size = absurd[i]};
    posenc_plan* none = NULL;
    REFUSED(posenc_plan_from_scheme(kPlain, 0, POSENC_F32, &options, &none, &error));
    CHECK(none == NULL && strstr(error.message, "options.struct_size") != NULL);
    posenc_error wrong = {.struct_size = absurd[i]};
    REFUSED(posenc_plan_describe(plan, &info, &wrong));
    CHECK(wrong.message[0] == '\0' && wrong.struct_size == absurd[i]);
  }
  info.struct_size = sizeof(size_t) + 7; /* in the middle of the first field */
  REFUSED(posenc_plan_describe(plan, &info, &error));
  /* In the middle of any field; behind each of them is a size that a program may have. */
  for (size_t size = 2 * sizeof(size_t); size <= sizeof info; ++size) {
    memset(&info, 0x5a, sizeof info);
    info.struct_size = size;
    const posenc_status got = posenc_plan_describe(plan, &info, &error);
    CHECK((got == POSENC_OK) == (size % sizeof(int64_t) == 0));
    if (got != POSENC_OK) CHECK(strstr(error.message, "or end behind one of its fields") != NULL);
  }
  for (size_t size = offsetof(posenc_attention_sizes, heads); size < sizeof(posenc_attention_sizes);
       ++size) {
    posenc_attention_sizes cut = {.struct_size = size, .heads = 2, .head_dim = 4, .has_scale = 1};
    posenc_attention* attention = NULL;
    /* has_scale is an int with padding behind it */
    const size_t in = size - offsetof(posenc_attention_sizes, heads);
    const int whole = in % 8 == 0 || (size > offsetof(posenc_attention_sizes, has_scale) + 3 &&
                                      size <= offsetof(posenc_attention_sizes, scale));
    const posenc_status got = posenc_attention_create(NULL, 0, &cut, &attention, &error);
    CHECK((got == POSENC_OK) == (whole && in >= 16));
    if (!whole) CHECK(strstr(error.message, "sizes.struct_size") != NULL);
    posenc_attention_free(attention);
  }
  info.struct_size = sizeof info;
  /* A short error: the sentence is cut to its room. */
  posenc_error small;
  memset(&small, 0x5a, sizeof small);
  small.struct_size = offsetof(posenc_error, message) + 8;
  REFUSED(posenc_plan_from_scheme("nonsense", 0, POSENC_F32, NULL, &plan, &small));
  CHECK(strlen(small.message) == 7 && small.message[8] == 0x5a);
  posenc_plan_free(plan);
}

typedef struct {
  int calls;
  int64_t tasks;
} Host;
static void run(void* context, int64_t n, void (*task)(void* arg, int64_t i), void* arg) {
  Host* host = context;
  ++host->calls;
  host->tasks += n;
  for (int64_t i = n; i-- > 0;) task(arg, i); /* any order */
}

/* A call of 4 MiB is split over the host's threads, with the bits of any other number. */
static void executors(void) {
  enum { kTokens = 16384, kDim = 64, kSize = kTokens * kDim };
  posenc_plan* plan = NULL;
  OK(posenc_plan_from_scheme("rope head_dim=64 pairing=half_split", 0, POSENC_F32, NULL, &plan,
                             &error));
  float* x[3];
  int64_t* at = malloc(kTokens * sizeof *at);
  for (int64_t i = 0; i < kTokens; ++i) at[i] = i;
  int64_t shape[3] = {kTokens, 1, kDim};
  PosencDLTensor q = {.device = {1, 0}, .ndim = 3, .dtype = {2, 32, 1}, .shape = shape};
  PosencDLTensor p = {.data = at, .device = {1, 0}, .ndim = 1, .dtype = {0, 64, 1}, .shape = shape};
  Host host = {0, 0};
  posenc_executor own = {.struct_size = sizeof own, .context = &host, .concurrency = 4, .run = run};
  for (int n = 0; n < 3; ++n) {
    x[n] = malloc(kSize * sizeof *x[n]);
    for (int i = 0; i < kSize; ++i) x[n][i] = (float)(i % 251) - 125;
    q.data = x[n];
    if (n == 0) OK(posenc_set_threads(1, &error));
    if (n == 1) OK(posenc_set_threads(3, &error));
    if (n == 2) OK(posenc_set_executor(&own, &error));
    OK(posenc_apply(plan, "thd", &q, NULL, NULL, NULL, &p, POSENC_FORWARD, &error));
    CHECK(memcmp(x[0], x[n], kSize * sizeof *x[n]) == 0);
  }
  CHECK(host.calls == 1 && host.tasks == 4);
  OK(posenc_set_executor(NULL, &error));
  OK(posenc_apply(plan, "thd", &q, NULL, NULL, NULL, &p, POSENC_FORWARD, &error));
  CHECK(host.calls == 1);
  REFUSED(posenc_set_threads(-1, &error));
  REFUSED(posenc_set_threads(1025, &error));
  CHECK(strstr(error.message, "1 to 1024") != NULL);
  own.concurrency = 0;
  REFUSED(posenc_set_executor(&own, &error));
  own.concurrency = 4, own.run = NULL;
  REFUSED(posenc_set_executor(&own, &error));
  own.struct_size = 0;
  REFUSED(posenc_set_executor(&own, &error));
  CHECK(strstr(error.message, "executor.struct_size") != NULL);
  OK(posenc_set_threads(0, &error));
  for (int n = 0; n < 3; ++n) free(x[n]);
  free(at);
  posenc_plan_free(plan);
}

static void findings(void) {
  posenc_model* model = NULL;
  posenc_plan* plan = NULL;
  posenc_finding f = {.struct_size = sizeof f};
  OK(posenc_model_read(POSENC_SOURCE_DIR "/conformance/gguf/files/value_freq_base_nan.gguf", 0,
                       &model, &error));
  const int64_t count = posenc_model_findings(model);
  int seen = 0;
  for (int64_t i = 0; i < count; ++i) {
    OK(posenc_model_finding(model, i, &f, &error));
    CHECK(f.code != NULL && f.message != NULL && f.where != NULL && f.fix != NULL);
    seen += f.severity == POSENC_ERROR && strstr(f.where, "llama.rope.freq_base") != NULL &&
            strlen(f.code) > 0 && strlen(f.message) > 0;
  }
  CHECK(count > 0 && seen == 1);
  REFUSED(posenc_model_finding(model, count, &f, &error));
  REFUSED(posenc_model_finding(model, -1, &f, &error));
  CHECK(posenc_plan_from_layer(model, 0, POSENC_F32, NULL, &plan, &error) == POSENC_BAD_FILE);
  CHECK(plan == NULL && strstr(error.message, "llama.rope.freq_base") != NULL);
  posenc_model_free(model);
  posenc_model_free(NULL);
  OK(posenc_model_read(POSENC_SOURCE_DIR "/conformance/gguf/files/qwen25_yarn.gguf", 0, &model,
                       &error));
  CHECK(posenc_model_layers(model) > 3 && posenc_model_layers(NULL) == 0);
  CHECK(posenc_model_findings(NULL) == 0);
  OK(posenc_plan_from_layer(model, 3, POSENC_BF16, NULL, &plan, &error));
  posenc_plan_free(plan);
  plan = NULL;
  REFUSED(posenc_plan_from_layer(model, 1000, POSENC_F32, NULL, &plan, &error));
  REFUSED(posenc_plan_from_layer(NULL, 0, POSENC_F32, NULL, &plan, &error));
  posenc_model_free(model);
  CHECK(posenc_model_read("/nonexistent.gguf", 0, &model, &error) == POSENC_BAD_FILE);
}

static void lengths_and_memory(void) {
  posenc_plan *plan = NULL, *any = NULL;
  posenc_table* table = NULL;
  posenc_plan_options allow = {.struct_size = sizeof allow, .outside = POSENC_OUTSIDE_ALLOW};
  OK(posenc_plan_from_scheme(kTwoLists, 32, POSENC_F32, NULL, &plan, &error));
  OK(posenc_plan_from_scheme(kTwoLists, 32, POSENC_F32, &allow, &any, &error));
  posenc_plan_info info = {.struct_size = sizeof info};
  OK(posenc_plan_describe(plan, &info, &error));
  CHECK(info.valid_from == 17 && info.valid_to == INT64_MAX);
  float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  int64_t at = 15, shape[3] = {1, 1, 8};
  PosencDLTensor q = {.data = x, .device = {1, 0}, .ndim = 3, .dtype = {2, 32, 1}, .shape = shape};
  PosencDLTensor p = {
      .data = &at, .device = {1, 0}, .ndim = 1, .dtype = {0, 64, 1}, .shape = shape};
  REFUSED(posenc_apply(plan, "thd", &q, NULL, NULL, NULL, &p, POSENC_FORWARD, &error));
  CHECK(strstr(error.message, "must be at least 17") != NULL && x[0] == 1);
  OK(posenc_apply(any, "thd", &q, NULL, NULL, NULL, &p, POSENC_FORWARD, &error));
  at = 16;
  OK(posenc_apply(plan, "thd", &q, NULL, NULL, NULL, &p, POSENC_FORWARD, &error));
  posenc_plan_free(any);
  any = NULL;
  allow.outside = (posenc_outside)7;
  REFUSED(posenc_plan_from_scheme(kTwoLists, 32, POSENC_F32, &allow, &any, &error));
  OK(posenc_plan_from_scheme(kTwoLists, 16, POSENC_F32, NULL, &any, &error));
  REFUSED(posenc_table_create(any, 17, POSENC_F32, POSENC_HALF, 0, &table, &error));
  posenc_plan_free(any);
  CHECK(posenc_table_create(plan, (int64_t)1 << 40, POSENC_F32, POSENC_HALF, 0, &table, &error) ==
        POSENC_OUT_OF_MEMORY);
  CHECK(table == NULL && strstr(error.message, "35184372088832 bytes") != NULL);
  CHECK(posenc_table_create(plan, INT64_MAX, POSENC_F32, POSENC_HALF, 0, &table, &error) ==
        POSENC_OUT_OF_MEMORY);
  OK(posenc_table_create(plan, 32, POSENC_F32, POSENC_HALF, 0, &table, &error));
  CHECK(posenc_table_grow(table, (int64_t)1 << 40, &error) == POSENC_OUT_OF_MEMORY);
  posenc_plan* wide = NULL;
  OK(posenc_plan_from_scheme("rope head_dim=16 pairing=half_split", 0, POSENC_F32, NULL, &wide,
                             &error));
  REFUSED(posenc_table_replace(table, wide, &error));
  CHECK(strstr(error.message, "heads, axes and pairs") != NULL && posenc_table_size(table) == 32);
  posenc_plan_free(wide);
  posenc_table_free(table);
  posenc_plan_free(plan);
}

int structs_executors_and_findings(void) {
  sizes();
  executors();
  findings();
  lengths_and_memory();
  return failures;
}
