// SPDX-License-Identifier: Apache-2.0
// The words of a verb as data: options, flags and positional arguments. The command line parses by them; help, completion, the manual page and the Python functions are made from them.
#pragma once
#include <deque>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "posenc/core/dtype.h"
#include "posenc/report/subject.h"

namespace posenc::report {

// No upper bound.
inline constexpr Index kMost = Index{1} << 62;

struct Word {
  std::string names;  // "--heads", "-o,--output", or MODEL of a positional argument
  std::string type;   // placeholder of the value in help: "N"; empty: a flag
  std::string help;
  std::string fallback{};  // the default that help shows; empty: the help text states it
  bool is_required = false, is_repeatable = false;
  bool is_file = false;    // its value names a file that is read
  bool is_model = false;   // its value may name a model
  bool is_output = false;  // names the output: functions return the data instead
  // Stores a value; returns what is wrong with it, or an empty text.
  std::function<std::string(const std::string&)> store{};
  std::vector<std::string> given{};

  bool is_flag() const { return type.empty() && !is_positional(); }
  bool is_positional() const { return names.front() != '-'; }
  std::string name() const;  // the long one without dashes: "key-positions"
  std::string set(const std::string& value);

  Word& required() { return is_required = true, *this; }
  Word& otherwise(std::string shown) { return fallback = std::move(shown), *this; }
  Word& file() { return is_file = true, *this; }
  Word& one_of(std::initializer_list<const char*> words);
};

enum class Takes { model, layer_of_model, model_or_scheme };
// The content of the output of a verb (-o).
enum class Holds { nothing, text, one_array, arrays, picture };

class Words {
 public:
  Word& text(const char* names, std::string& to, const char* type, const char* help);
  Word& texts(const char* names, std::vector<std::string>& to, const char* type, const char* help);
  Word& flag(const char* names, bool& to, const char* help);
  // Decimal digits, both ends included.
  Word& whole(const char* names, Index& to, Index low, Index high, const char* type,
              const char* help);
  Word& whole(const char* names, std::optional<Index>& to, Index low, Index high, const char* type,
              const char* help);
  Word& real(const char* names, double& to, const char* type, const char* help);
  Word& real(const char* names, std::optional<double>& to, const char* type, const char* help);
  Word& custom(const char* names, const char* type, const char* help,
               std::function<std::string(const std::string&)> store);

  // MODEL or MODEL|SCHEME, and the options that select a part of it.
  // How a model is read: --context, --layer where `layer`, --assume, --reader.
  void reading(SubjectOptions&, bool layer);
  Word& subject(SubjectOptions&, Takes);  // required unless changed
  // Only --json: the verb prints a report.
  void json();
  // -o, --format and --json.
  Word& output(Holds, const char* help);

  std::deque<Word>& all() { return words_; }
  const std::deque<Word>& all() const { return words_; }
  Holds holds() const { return holds_; }
  // Where -o, --format and --json are stored.
  struct Output {
    std::string path, format;
    bool json = false;
  } out;

 private:
  std::deque<Word> words_;
  Holds holds_ = Holds::nothing;
};

// Decimal digits, the whole text. Returns what is wrong with it, or an empty text.
std::string read_whole(const std::string& text, Index low, Index high, Index& to);
std::string read_real(const std::string& text, double& to);

}  // namespace posenc::report
