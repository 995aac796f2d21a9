/* SPDX-License-Identifier: Apache-2.0 */
/* Reports in C: explain, doctor, table, bias, plot and the other verbs, as text, JSON or SVG. Link
   posenc::report. Stable like posenc_c.h. */
#ifndef POSENC_REPORT_C_H
#define POSENC_REPORT_C_H

#include "posenc/posenc_c.h"

#ifdef __cplusplus
extern "C" {
#endif

/* words: a verb and its words as on the command line, without "posenc", `count` of them:
     {"doctor", "model.gguf", "--json"}, {"plot", "alibi", "--kind", "bias", "--heads", "8"}
   text: what the verb prints; of plot the SVG; of verbs that compute arrays, without -o F, JSON of
   their names, dtypes and shapes. At most `size` bytes are written, the terminating 0 included;
   *needed gets the bytes of the whole text. With text NULL and size 0 the verb only says how many.
   *negative: 1 where the answer is negative (doctor: an error), else 0; may be NULL.
   POSENC_INVALID_ARGUMENT: wrong words. POSENC_BAD_FILE: wrong input. */
posenc_status posenc_report(const char* const* words, size_t count, char* text, size_t size,
                            size_t* needed, int* negative, posenc_error* error);

#ifdef __cplusplus
}
#endif

#endif
