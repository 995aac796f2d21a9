// SPDX-License-Identifier: Apache-2.0
#include "posenc/report/report_c.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "common.h"
#include "posenc/core/error.h"
#include "posenc/report/command_line.h"

namespace posenc::report {
namespace {

// A message that does not fit is cut.
posenc_status failed(posenc_error* error, posenc_status status, const char* message) {
  if (error == nullptr || error->struct_size != sizeof *error) return status;
  const std::size_t length = std::min(std::strlen(message), sizeof error->message - 1);
  std::memcpy(error->message, message, length);
  error->message[length] = '\0';
  return status;
}

std::string text_of(const Report& made) {
  if (made.bytes) return *made.bytes;
  return made.schema.empty() ? made.text : written_text(made.schema, "", made.arrays, true);
}

}  // namespace
}  // namespace posenc::report

posenc_status posenc_report(const char* const* words, size_t count, char* text, size_t size,
                            size_t* needed, int* negative, posenc_error* error) {
  using namespace posenc::report;
  if (error != nullptr && error->struct_size != sizeof *error) return POSENC_INVALID_ARGUMENT;
  if (words == nullptr || needed == nullptr || (text == nullptr && size > 0))
    return failed(error, POSENC_INVALID_ARGUMENT,
                  "[report] words, needed and text of a size must not be NULL");
  try {
    std::vector<std::string> all{"posenc"};
    for (size_t i = 0; i < count; ++i) {
      if (words[i] == nullptr)
        return failed(error, POSENC_INVALID_ARGUMENT, "[report] a word must not be NULL");
      all.emplace_back(words[i]);
    }
    const Report made = report_of(all);
    const std::string whole = text_of(made);
    *needed = whole.size() + 1;
    if (negative != nullptr) *negative = made.code == kNegative ? 1 : 0;
    if (size == 0) return POSENC_OK;
    const std::size_t length = std::min(whole.size(), size - 1);
    std::memcpy(text, whole.data(), length);
    text[length] = '\0';
    return POSENC_OK;
  } catch (const UsageError& e) {
    return failed(error, POSENC_INVALID_ARGUMENT, e.what());
  } catch (const std::invalid_argument& e) {
    return failed(error, POSENC_INVALID_ARGUMENT, e.what());
  } catch (const std::bad_alloc& e) {
    return failed(error, POSENC_OUT_OF_MEMORY, e.what());
  } catch (const InputError& e) {
    return failed(error, POSENC_BAD_FILE, e.what());
  } catch (const posenc::FormatError& e) {
    return failed(error, POSENC_BAD_FILE, e.what());
  } catch (const std::exception& e) {
    return failed(error, POSENC_FAILED, e.what());
  }
}
