// SPDX-License-Identifier: Apache-2.0
// What the sources of the C interface share.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <new>
#include <string>

#include "c/struct_fields.h"
#include "posenc/core/error.h"
#include "posenc/io/dlpack.h"
#include "posenc/model/finding.h"
#include "posenc/posenc_c.h"
#include "posenc/rotary/plan.h"
#include "posenc/rotary/table.h"

struct posenc_plan {
  posenc::RotaryPlan plan;
};
struct posenc_table {
  posenc::RotaryTable table;
};

namespace posenc::inline v0::c {

// Sizes that no struct of this interface has or will have.
constexpr std::size_t kMostStruct = 1 << 16;

// How many bytes of the caller's struct are ours to fill or read. Throws [c]: a size that ends inside
// a field, or before the end of the first field behind struct_size.
template <std::size_t N>
std::size_t known_size(std::size_t given, const FieldPlace (&fields)[N], std::size_t own,
                       const char* name) {
  bool whole = given >= fields[1].end && given <= kMostStruct;
  for (const FieldPlace& f : fields) whole = whole && (given <= f.begin || given >= f.end);
  if (!whole)
    refuse_field("c", std::string(name) + ".struct_size",
                 "must be the size of the struct, " + std::to_string(own) +
                     ", or end behind one of its fields",
                 static_cast<Index>(std::min(given, kMostStruct + 1)));
  return std::min(given, own);
}
// Fills the caller's struct as far as it goes, and what lies behind ours with 0.
template <class T>
void fill(T& to, T from, const char* name) {
  static_assert(cover(StructFields<T>::list, sizeof(T)));
  const std::size_t size = to.struct_size,
                    known = known_size(size, StructFields<T>::list, sizeof(T), name);
  auto* bytes = reinterpret_cast<unsigned char*>(&to);
  from.struct_size = size;
  std::memcpy(bytes, &from, known);
  std::memset(bytes + known, 0, size - known);
}
// The caller's struct, whose missing end is that of `defaults`.
template <class T>
T taken(const T& from, T defaults, const char* name) {
  static_assert(cover(StructFields<T>::list, sizeof(T)));
  std::memcpy(&defaults, &from,
              known_size(from.struct_size, StructFields<T>::list, sizeof(T), name));
  return defaults;
}

inline bool is_writable(const posenc_error* error) noexcept {
  return error == nullptr || (error->struct_size > offsetof(posenc_error, message) &&
                              error->struct_size <= kMostStruct);
}
inline posenc_status report(posenc_error* error, posenc_status status, const char* what) noexcept {
  if (error == nullptr) return status;
  const std::size_t room = error->struct_size - offsetof(posenc_error, message);
  const std::size_t n = std::min(std::strlen(what), std::min(room, sizeof error->message) - 1);
  std::memcpy(error->message, what, n);
  error->message[n] = '\0';
  return status;
}

// Runs f and turns whatever it throws into a status.
template <class F>
posenc_status guarded(posenc_error* error, F&& f) noexcept {
  if (!is_writable(error)) return POSENC_INVALID_ARGUMENT;
  try {
    f();
    return POSENC_OK;
  } catch (const FormatError& e) {
    return report(error, POSENC_BAD_FILE, e.what());
  } catch (const ModelError& e) {
    return report(error, POSENC_BAD_FILE, e.what());
  } catch (const std::invalid_argument& e) {
    return report(error, POSENC_INVALID_ARGUMENT, e.what());
  } catch (const OutOfMemory& e) {
    return report(error, POSENC_OUT_OF_MEMORY, e.what());
  } catch (const std::bad_alloc&) {
    return report(error, POSENC_OUT_OF_MEMORY, "[c] out of memory");
  } catch (const std::exception& e) {
    return report(error, POSENC_FAILED, e.what());
  } catch (...) {
    return report(error, POSENC_FAILED, "[c] an exception of unknown type");
  }
}

template <class T>
T& need(T* p, const char* name) {
  if (p == nullptr) refuse_field("c", name, "must not be null");
  return *p;
}

inline PlanOptions options_of(const posenc_plan_options* given) {
  PlanOptions options;
  if (given == nullptr) return options;
  const posenc_plan_options o =
      taken(*given, {sizeof(posenc_plan_options), POSENC_OUTSIDE_REFUSE}, "options");
  if (o.outside != POSENC_OUTSIDE_REFUSE && o.outside != POSENC_OUTSIDE_ALLOW)
    refuse_field("c", "options.outside", "must be one of posenc_outside",
                 static_cast<Index>(o.outside));
  if (o.outside == POSENC_OUTSIDE_ALLOW) options.outside = OutsideRange::allow;
  return options;
}

inline DType dtype_of(posenc_dtype t) {
  switch (t) {
    case POSENC_F64:
      return DType::f64;
    case POSENC_F32:
      return DType::f32;
    case POSENC_F16:
      return DType::f16;
    case POSENC_BF16:
      return DType::bf16;
    case POSENC_DTYPE_NONE:
      break;
  }
  refuse("c", "the dtype must be one of posenc_dtype", static_cast<Index>(t));
}

inline RotateMode mode_of(posenc_rotate_mode s) {
  switch (s) {
    case POSENC_FORWARD:
      return RotateMode::forward;
    case POSENC_GRADIENT:
      return RotateMode::gradient;
    case POSENC_INVERSE:
      return RotateMode::inverse;
    case POSENC_SHIFT:
      return RotateMode::shift;
    case POSENC_ROTATE_MODE_NONE:
      break;
  }
  refuse("c", "the mode must be one of posenc_rotate_mode", static_cast<Index>(s));
}

inline TableLayout row_layout(posenc_row_layout layout) {
  switch (layout) {
    case POSENC_HALF:
      return TableLayout::half;
    case POSENC_DUPLICATED:
      return TableLayout::duplicated;
    case POSENC_REPEATED:
      return TableLayout::repeated;
    case POSENC_PAIRS:
      return TableLayout::pairs;
    case POSENC_ROW_LAYOUT_NONE:
      break;
  }
  refuse("c", "the layout of rows must be one of posenc_row_layout", static_cast<Index>(layout));
}

// Input and output of one call.
struct Operands {
  ConstQK in;
  QK out;
  bool in_place = false;
};
// apply(x), or apply(in, out).
template <class F>
void call_with(const Operands& o, F&& apply) {
  if (o.in_place)
    apply(o.out);
  else
    apply(o.in, o.out);
}
inline Operands operands(const char* layout, const PosencDLTensor* q, const PosencDLTensor* k,
                         const PosencDLTensor* q_out, const PosencDLTensor* k_out) {
  const HeadsLayout order = layout_from_name(std::string_view(&need(layout, "layout")));
  if (q == nullptr && k == nullptr) refuse("c", "q or k must be given");
  if ((q == nullptr && q_out != nullptr) || (k == nullptr && k_out != nullptr))
    refuse("c", "an output needs its input");
  const auto heads = [&](const PosencDLTensor& t) { return posenc::heads(from_dlpack(t), order); };
  Operands o;
  o.in_place = q_out == nullptr && k_out == nullptr;
  QK in;
  if (q != nullptr) {
    in.q = heads(*q);
    o.out.q = q_out == nullptr ? in.q : heads(*q_out);
  }
  if (k != nullptr) {
    in.k = heads(*k);
    o.out.k = k_out == nullptr ? in.k : heads(*k_out);
  }
  o.in = in;
  return o;
}

inline Positions positions_of(const PosencDLTensor* p) {
  return positions(from_dlpack(need(p, "positions")));
}

}  // namespace posenc::v0::c
