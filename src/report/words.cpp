// SPDX-License-Identifier: Apache-2.0
#include "posenc/report/words.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace posenc::report {
namespace {

constexpr const char* kModel =
    "a config.json, a directory that contains one, a .gguf file, or - for a config.json on stdin";
constexpr const char* kSubject =
    "a model's file (config.json, directory, .gguf, -) or a SCHEME such as\n"
    "\"rope head_dim=128 pairing=half_split + yarn factor=4 original_context=4096\"";

template <class T>
bool read(const std::string& text, T& to) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), to);
  return error == std::errc{} && end == text.data() + text.size();
}

// The number that was perhaps meant: 1e5, 1.5e4, 128k.
std::string meant(const std::string& text) {
  double x = 0;
  if (read(text, x) && x == std::floor(x) && std::abs(x) < 1e15)
    return fmt::format(" (in digits: {:.0f})", x);
  const char last = text.empty() ? ' ' : text.back();
  Index n = 0;
  if ((last == 'k' || last == 'K') && read(text.substr(0, text.size() - 1), n) && n > 0 &&
      n < 1000000000)
    return fmt::format(" ({} or {}?)", n * 1000, n * 1024);
  return "";
}

}  // namespace

std::string read_whole(const std::string& text, Index low, Index high, Index& to) {
  Index n = 0;
  const bool whole = read(text, n);
  if (whole && n >= low && n <= high) {
    to = n;
    return {};
  }
  return fmt::format(
      "must be a whole number {}, got \"{}\"{}",
      high < kMost ? fmt::format("from {} to {}", low, high) : fmt::format("of at least {}", low),
      text, whole ? "" : meant(text));
}

std::string read_real(const std::string& text, double& to) {
  double x = 0;
  if (!read(text, x) || !std::isfinite(x))
    return fmt::format("must be a finite number, got \"{}\"", text);
  to = x;
  return {};
}

std::string Word::name() const {
  const auto dashes = names.rfind("--");
  return dashes == std::string::npos ? names : names.substr(dashes + 2);
}

// An empty value is a variable that was not set, not a request for the default.
std::string Word::set(const std::string& value) {
  if (value.empty() && !is_flag()) return "must not be empty";
  std::string wrong = store(value);
  if (wrong.empty()) given.push_back(value);
  return wrong;
}

Word& Word::one_of(std::initializer_list<const char*> words) {
  store = [known = std::vector<std::string>(words.begin(), words.end()),
           stored = std::move(store)](const std::string& value) {
    for (const std::string& word : known)
      if (word == value) return stored(value);
    return fmt::format("must be one of {}, got \"{}\"", fmt::join(known, ", "), value);
  };
  return *this;
}

Word& Words::custom(const char* names, const char* type, const char* help,
                    std::function<std::string(const std::string&)> store) {
  Word& word = words_.emplace_back(Word{names, type, help});
  word.store = std::move(store);
  return word;
}

Word& Words::text(const char* names, std::string& to, const char* type, const char* help) {
  return custom(names, type, help, [&to](const std::string& value) {
    to = value;
    return std::string();
  });
}

Word& Words::texts(const char* names, std::vector<std::string>& to, const char* type,
                   const char* help) {
  Word& word = custom(names, type, help, [&to](const std::string& value) {
    to.push_back(value);
    return std::string();
  });
  word.is_repeatable = true;
  return word;
}

Word& Words::flag(const char* names, bool& to, const char* help) {
  return custom(names, "", help, [&to](const std::string&) {
    to = true;
    return std::string();
  });
}

Word& Words::whole(const char* names, Index& to, Index low, Index high, const char* type,
                   const char* help) {
  return custom(names, type, help,
                [&to, low, high](const std::string& v) { return read_whole(v, low, high, to); });
}

Word& Words::whole(const char* names, std::optional<Index>& to, Index low, Index high,
                   const char* type, const char* help) {
  return custom(names, type, help, [&to, low, high](const std::string& v) {
    Index n = 0;
    std::string wrong = read_whole(v, low, high, n);
    if (wrong.empty()) to = n;
    return wrong;
  });
}

Word& Words::real(const char* names, double& to, const char* type, const char* help) {
  return custom(names, type, help, [&to](const std::string& v) { return read_real(v, to); });
}

Word& Words::real(const char* names, std::optional<double>& to, const char* type,
                  const char* help) {
  return custom(names, type, help, [&to](const std::string& v) {
    double x = 0;
    std::string wrong = read_real(v, x);
    if (wrong.empty()) to = x;
    return wrong;
  });
}

void Words::reading(SubjectOptions& o, bool layer) {
  whole("--context", o.context, 1, Index{1} << 50, "N",
        "sequence length for rules that depend on it (default: the model's own)");
  if (layer) whole("--layer", o.layer, 0, kMost, "L", "one layer, counted from 0");
  texts("--assume", o.assume, "K=V",
        "set a value that the file does not state, as KEY=VALUE; repeatable");
  text("--reader", o.reader, "NAME",
       "the program whose reading of the file counts: transformers or llama_cpp (default: by the "
       "file)")
      .one_of({"transformers", "llama_cpp"});
}

Word& Words::subject(SubjectOptions& o, Takes takes) {
  const bool scheme = takes == Takes::model_or_scheme;
  Word& word = text(scheme ? "MODEL|SCHEME" : "MODEL", o.text, "", scheme ? kSubject : kModel);
  word.required().is_model = true;
  reading(o, takes != Takes::model);
  if (!scheme) return word;
  text("--tower", o.tower, "T", "the tower of a model with several: vision, audio or encoder");
  text("--arrays", o.arrays, "F",
       ".safetensors file with the arrays of @name in a SCHEME and with its learned parameters")
      .file();
  whole("--start", o.start, 0, kMost, "SEED",
        "draw the learned parameters of a SCHEME from SEED, as before training");
  return word;
}

void Words::json() {
  flag("--json", out.json, "print JSON with a stable schema").is_output = true;
  if (holds_ == Holds::nothing) holds_ = Holds::text;
}

Word& Words::output(Holds holds, const char* help) {
  holds_ = holds;
  Word& file = text("-o,--output", out.path, "F", help);
  file.is_output = true;
  text("--format", out.format, "FORMAT",
       holds == Holds::picture ? "format for -o -: svg, html or png"
                               : "format for -o -: npy, safetensors or csv")
      .is_output = true;
  json();
  return file;
}

}  // namespace posenc::report
