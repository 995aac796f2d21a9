// SPDX-License-Identifier: Apache-2.0
// POSENC_API marks what the shared library exports; everything else is hidden.
// POSENC_LIFETIME_BOUND: the result is a view of the object; clang warns if it outlives it.
#pragma once
#if defined(POSENC_STATIC)
#define POSENC_API
#elif defined(__GNUC__)
#define POSENC_API __attribute__((visibility("default")))
#else
#define POSENC_API
#endif
#if defined(__clang__)
#define POSENC_LIFETIME_BOUND [[clang::lifetimebound]]
#else
#define POSENC_LIFETIME_BOUND
#endif
