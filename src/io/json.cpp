// SPDX-License-Identifier: Apache-2.0
// Text to Json. The only source that includes nlohmann-json, and of it only the SAX parser, which
// does not recurse. What it lets pass and we do not: duplicate keys, byte order marks, a NUL byte
// taken for the end, unbounded depth.
#include "posenc/io/json.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <limits>
#include <nlohmann/json.hpp>

#include "io/files.h"
#include "io/json_tokens.h"
#include "posenc/core/error.h"
#include "posenc/core/printable.h"

namespace posenc::inline v0 {
namespace {

constexpr std::size_t kMaxBytes = 100'000'000;
constexpr std::size_t kMaxTextDepth = 200;
constexpr std::size_t kMaxValues = 4'000'000;  // [[],[],...]: 40 bytes of memory for 3 of text
constexpr std::size_t kLinearKeys = 16;        // from here on keys are looked up by hash
constexpr std::size_t kMaxShown = 320;         // of a path and of a problem

std::string escaped_token(std::string_view key) {
  std::string s;
  for (const char c : printable(key)) {
    if (c == '~')
      s += "~0";
    else if (c == '/')
      s += "~1";
    else
      s += c;
  }
  return s;
}

// A token of Python's is parsed as a string of its length, quotes included, of a character that the
// text holds nowhere else.
constexpr char kStandIn = '\x7f';
constexpr std::string_view kTokens[] = {"NaN", "Infinity", "-Infinity"};

bool is_stand_in(std::string_view s) {
  return !s.empty() && s.find_first_not_of(kStandIn) == std::string_view::npos;
}

// The text with stand-ins for the tokens, empty when it has none or could not be told from one.
std::string with_stand_ins(std::string_view text) {
  std::string out;
  if (text.find("NaN") == std::string_view::npos && text.find("Infinity") == std::string_view::npos)
    return out;
  if (text.find(kStandIn) != std::string_view::npos) return out;
  for (const char* escape : {"\\u007f", "\\u007F"})
    if (text.find(escape) != std::string_view::npos) return out;
  bool inside = false;
  const auto apart = [&](std::size_t i) {  // no token goes on there
    return i >= text.size() ||
           std::string_view(" \t\r\n,:[]{}").find(text[i]) != std::string_view::npos;
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (inside && text[i] == '\\')
      ++i;
    else if (text[i] == '"')
      inside = !inside;
    else if (!inside && (i == 0 || apart(i - 1)))
      for (const std::string_view token : kTokens)
        if (text.substr(i, token.size()) == token && apart(i + token.size())) {
          if (out.empty()) out = text;
          for (std::size_t k = 0; k < token.size(); ++k)
            out[i + k] = k == 0 || k + 1 == token.size() ? '"' : kStandIn;
        }
  }
  return out;
}

// Whether a key stands twice, without a copy of one: places of members, looked up by hash.
class KeyIndex {
 public:
  // Adds the key that the members hold last; false where one before it is the same.
  bool add(const Json::Object& members) {
    if (slots_.size() < 2 * members.size()) grow(members);
    return insert(members, members.size() - 1);
  }

 private:
  void grow(const Json::Object& members) {
    slots_.assign(std::bit_ceil(4 * members.size()), 0);
    for (std::size_t i = 0; i + 1 < members.size(); ++i) insert(members, i);
  }
  bool insert(const Json::Object& members, std::size_t i) {
    const std::string& key = members[i].first;
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = std::hash<std::string>()(key) & mask;
    for (; slots_[at] != 0; at = (at + 1) & mask)
      if (members[slots_[at] - 1].first == key) return false;
    slots_[at] = static_cast<std::uint32_t>(i + 1);
    return true;
  }

  std::vector<std::uint32_t> slots_;  // 0: empty, else a member's number plus 1
};

class Builder {
 public:
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;

  // found: where stand-ins of NaN and infinities go, none when there are none.
  explicit Builder(const std::string& file, std::vector<NonFinite>* found = nullptr)
      : file_(file), found_(found) {}
  Json take() { return std::move(root_); }

  bool null() { return add(Json(nullptr)); }
  bool boolean(bool b) { return add(Json(b)); }
  bool number_integer(number_integer_t i) { return add(Json(std::int64_t{i})); }
  bool number_unsigned(number_unsigned_t u) {
    if (u <= static_cast<number_unsigned_t>(std::numeric_limits<std::int64_t>::max()))
      return add(Json(static_cast<std::int64_t>(u)));
    return add(Json(static_cast<double>(u)));
  }
  bool number_float(number_float_t d, const string_t&) { return add(Json(d)); }
  bool string(string_t& s) {
    if (!found_ || !is_stand_in(s)) return add(Json(std::move(s)));
    const std::size_t size = s.size() + 2;  // as long as the token, quotes included
    found_->push_back({keys(), path(), size == 3 ? "NaN" : size == 8 ? "Infinity" : "-Infinity"});
    return add(Json(nullptr));
  }
  bool binary(binary_t&) { return false; }  // not in text
  bool start_object(std::size_t) { return open(Json(Json::Object())); }
  bool start_array(std::size_t) { return open(Json(Json::Array())); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(string_t& k) {
    Level& level = levels_.back();
    Json::Object& members = level.json->as_object();
    members.emplace_back(std::move(k), Json());
    if (is_new(level.keys, members)) return true;
    throw FormatError(file_, path(), "the key occurs twice in its object");
  }

  bool parse_error(std::size_t byte, const std::string&, const nlohmann::detail::exception& e) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error while ..."
    std::string_view what = e.what();
    if (const auto end = what.find("] "); end != std::string_view::npos)
      what.remove_prefix(end + 2);
    constexpr std::string_view kPrefix = "parse error at ";
    if (what.substr(0, kPrefix.size()) == kPrefix) what.remove_prefix(kPrefix.size());
    std::string problem = printable(what, kMaxShown);
    // Python writes NaN and Infinity into JSON unless told otherwise; the last token read shows it.
    const std::string_view token = what.substr(std::min(what.rfind("last read"), what.size()));
    if (token.find('N') != std::string_view::npos || token.find('I') != std::string_view::npos)
      problem += " (JSON has no NaN or Infinity)";
    throw FormatError(file_, "byte " + std::to_string(byte), problem);
  }

 private:
  struct Level {
    Json* json;  // stable: a container grows only while no child of it is open
    KeyIndex keys;
  };

  static bool is_new(KeyIndex& keys, const Json::Object& members) {
    if (members.size() > kLinearKeys) return keys.add(members);
    return std::none_of(members.begin(), members.end() - 1,
                        [&](const auto& m) { return m.first == members.back().first; });
  }

  Json* place(Json v) {
    if (++values_ > kMaxValues)
      throw FormatError(file_, path(), "more than 4 million values in one text");
    if (levels_.empty()) {
      root_ = std::move(v);
      return &root_;
    }
    Json& parent = *levels_.back().json;
    if (parent.is_array()) {
      parent.as_array().push_back(std::move(v));
      return &parent.as_array().back();
    }
    Json& slot = parent.as_object().back().second;
    slot = std::move(v);
    return &slot;
  }
  bool add(Json v) {
    place(std::move(v));
    return true;
  }
  bool open(Json v) {
    if (levels_.size() >= kMaxTextDepth)
      throw FormatError(file_, path(), "nested deeper than 200 levels");
    Json* at = place(std::move(v));
    levels_.push_back({at, {}});
    return true;
  }
  bool close() {
    levels_.pop_back();
    return true;
  }

  // JSON pointer of the value being read.
  std::string path() const {
    std::string s = "#";
    for (const Level& level : levels_) {
      if (s.size() > kMaxShown) return s + "/...";
      if (level.json->is_object()) {
        const auto& members = level.json->as_object();
        if (!members.empty()) s += "/" + escaped_token(members.back().first);
      } else {
        const auto n = level.json->as_array().size();
        const bool innermost = &level == &levels_.back();
        s += "/" + std::to_string(innermost || n == 0 ? n : n - 1);
      }
    }
    return s;
  }

  // Keys that lead to the value that was read last; of lists nothing.
  std::vector<std::string> keys() const {
    std::vector<std::string> out;
    for (const Level& level : levels_)
      if (level.json->is_object() && !level.json->as_object().empty())
        out.push_back(level.json->as_object().back().first);
    return out;
  }

  const std::string& file_;
  std::vector<NonFinite>* found_;
  Json root_;
  std::vector<Level> levels_;
  std::size_t values_ = 0;
};

}  // namespace

namespace {

void check_bytes(std::string_view text, const std::string& file) {
  if (text.size() > kMaxBytes)
    throw FormatError(
        file, "byte 100000000",
        "JSON may have at most 100 MB, got " + std::to_string(text.size()) + " bytes");
  if (text.substr(0, 3) == "\xef\xbb\xbf")
    throw FormatError(file, "byte 0", "JSON must not begin with a byte order mark");
  if (const auto nul = text.find('\0'); nul != std::string_view::npos)
    throw FormatError(file, "byte " + std::to_string(nul), "JSON must not hold a NUL byte");
  if (std::all_of(text.begin(), text.end(),
                  [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }))
    throw FormatError(file, "byte " + std::to_string(text.size()), "is empty, JSON expected");
}

Json build(std::string_view text, Builder builder) {
  nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

}  // namespace

Json parse_json(std::string_view text, const std::string& file) {
  check_bytes(text, file);
  return build(text, Builder(file));
}

Json parse_json(std::string_view text, const std::string& file, std::vector<NonFinite>& found) {
  check_bytes(text, file);
  const std::string other = with_stand_ins(text);
  return other.empty() ? build(text, Builder(file)) : build(other, Builder(file, &found));
}

Json read_json(const FilePath& given) {
  const std::filesystem::path path(given.string());
  const std::vector<std::byte> bytes = read_regular_file(path, kMaxBytes);
  return parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path.string());
}

}  // namespace posenc::v0
