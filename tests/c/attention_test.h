/* SPDX-License-Identifier: Apache-2.0 */
#ifndef POSENC_TESTS_C_ATTENTION_TEST_H_
#define POSENC_TESTS_C_ATTENTION_TEST_H_

int attention_by_name(void);

#endif
