// SPDX-License-Identifier: Apache-2.0
#include "model/hugging_face/near_keys.h"
#include "model/hugging_face/scaling_types.h"

#include <algorithm>
#include <cctype>
#include <map>

namespace posenc::inline v0::hf {
namespace {

using Names = std::vector<std::string_view>;

// What an object holds that was meant for rotary.
constexpr std::string_view kRopeKeys[] = {"rope_theta", "rope_scaling", "rope_parameters",
                                          "rope_type", "partial_rotary_factor"};
// Encoder and decoder, rope and nope are told apart by their words.
constexpr std::string_view kOpposites[][2] = {{"encoder", "decoder"}, {"rope", "nope"}};

// ropeTheta and rope-theta: rope_theta.
std::string in_words(std::string_view name) {
  std::string out;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const auto c = static_cast<unsigned char>(name[i]);
    const bool begins =
        std::isupper(c) && i > 0 && std::islower(static_cast<unsigned char>(name[i - 1]));
    if (begins) out += '_';
    out += c == '-' || c == '.' || c == ' ' ? '_' : static_cast<char>(std::tolower(c));
  }
  return out;
}

std::string without_gaps(std::string name) {
  for (auto at = name.find("_kv_"); at != std::string::npos; at = name.find("_kv_"))
    name.replace(at, 4, "_key_value_");
  name.erase(std::remove(name.begin(), name.end(), '_'), name.end());
  return name;
}

std::vector<std::string> words_of(const std::string& name) {
  std::vector<std::string> words{""};
  for (const char c : name)
    if (c == '_')
      words.emplace_back();
    else
      words.back() += c;
  return words;
}

// attn of attention, pos of position.
bool abbreviates(std::string_view little, std::string_view word) {
  if (little.size() > word.size()) std::swap(little, word);
  if (little == word) return true;
  if (little.size() < 3 || little[0] != word[0]) return false;
  for (const char c : word)
    if (!little.empty() && little[0] == c) little.remove_prefix(1);
  return little.empty();
}

// The same words in another order, abbreviated, or one of many left out.
bool same_words(const std::string& name, std::string_view key) {
  const auto gaps = [](std::string_view text) { return std::count(text.begin(), text.end(), '_'); };
  if (gaps(name) != gaps(key) && gaps(name) + 1 != gaps(key)) return false;
  std::vector<std::string> a = words_of(name), b = words_of(std::string(key));
  if (a.size() == b.size() &&
      std::equal(a.begin(), a.end(), b.begin(),
                 [](const auto& x, const auto& y) { return abbreviates(x, y); }))
    return true;
  std::ranges::sort(a);
  std::ranges::sort(b);
  return a == b || (a.size() >= 3 && a.size() + 1 == b.size() &&
                    std::includes(b.begin(), b.end(), a.begin(), a.end()));
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const auto at = text.find(from);
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

// mm_hidden_size is no misspelling of hidden_size: a word of one or two letters tells them apart.
bool has_a_word_more(std::string_view key, std::string_view other) {
  if (!key.ends_with(other)) return false;
  key.remove_suffix(other.size());
  return (key.size() == 2 || key.size() == 3) && key.back() == '_';
}

bool both_legal(std::string_view key, std::string_view other) {
  if (has_a_word_more(key, other)) return true;
  return contains(table_member("both_legal").as_array(), Json::array({key, other})) ||
         std::ranges::any_of(kOpposites, [&](const auto& p) {
           return replaced(std::string(key), p[0], p[1]) == other ||
                  replaced(std::string(key), p[1], p[0]) == other;
         });
}

// At most so many letters are missing, too many, wrong, or exchanged with the next.
bool within(std::string_view a, std::string_view b, int edits) {
  while (!a.empty() && !b.empty() && a[0] == b[0]) a.remove_prefix(1), b.remove_prefix(1);
  if (std::max(a.size(), b.size()) <= static_cast<std::size_t>(edits)) return true;
  if (edits == 0) return false;
  const auto rest = [](std::string_view s, std::size_t n) {
    return s.substr(std::min(n, s.size()));
  };
  const bool swapped = a.size() > 1 && b.size() > 1 && a[0] == b[1] && a[1] == b[0];
  return within(rest(a, 1), b, edits - 1) || within(a, rest(b, 1), edits - 1) ||
         within(rest(a, 1), rest(b, 1), edits - 1) ||
         (swapped && within(rest(a, 2), rest(b, 2), edits - 1));
}

class NearKeys {
 public:
  NearKeys(const ModelSpec& spec, Report& report) : spec_(spec), report_(report) {
    for (const auto& [place, about] : report.asked) {
      const auto cut = place.rfind('/');
      readers_[place.substr(0, cut)].push_back(std::string_view(place).substr(cut + 1));
    }
    for (const Finding& f : report.findings()) said_.insert(f.where);
  }

  // `place`: of the object; `reader`: of the nearest object around it that somebody looked into.
  void look(const Json& object, const std::string& place, const std::string& reader) {
    const auto found = readers_.find(place);
    const bool read = found != readers_.end();
    for (const auto& [key, value] : object.as_object()) {
      const std::string at = place + "/" + key;
      if (read && !value.is_null())
        member(key, object, place, found->second);
      else if (!read)
        lost_in(key, value, place, reader);
      if (!value.is_object()) continue;
      if (key == "rope_scaling" || key == "rope_parameters")
        dictionary(value, at);
      else
        look(value, at, read ? place : reader);
    }
  }

  // Keys around a part which looks for them and has not got them.
  void outside(const Json& object, const std::string& place) {
    Names parts;
    for (const auto& [key, value] : object.as_object())
      if (value.is_object() && readers_.count(place + "/" + key)) parts.push_back(key);
    for (const std::string_view part : parts)
      outside(*object.find(part), place + "/" + std::string(part));
    for (const auto& [key, value] : object.as_object()) {
      if (!truthy(value) || report_.asked.count(place + "/" + key)) continue;
      for (const std::string_view part : parts)
        if (!lost_beside(key, value, place, place + "/" + std::string(part), *object.find(part)))
          break;
    }
  }

 private:
  void warn(const std::string& text, const std::string& place, const std::string& fix) {
    if (said_.insert(place).second) report_.warn("nearly_a_key", text, place, fix);
  }

  void member(const std::string& key, const Json& object, const std::string& place,
              const Names& read) {
    const std::string at = place + "/" + key;
    if (report_.asked.count(at)) return;
    if (contains(rope_members(), key) &&
        (contains(read, "rope_scaling") || contains(read, "rope_parameters"))) {
      const bool parameters = object.find("rope_parameters") || !contains(read, "rope_scaling");
      const std::string inside = parameters ? "rope_parameters" : "rope_scaling";
      const std::string reader =
          report_.asked.at(place + "/" + std::string(read.front())).class_name;
      return object.find(inside)
                 ? warn(message("nobody reads {} beside {}: {} reads it only inside", key, inside,
                                reader),
                        at, "move it into " + inside)
                 : warn(message("nobody reads {}: {} reads it only inside {}, which the file does "
                                "not have",
                                key, reader, inside),
                        at, "move it into " + inside);
    }
    std::string_view meant = nearly(key, read);
    if (meant.empty()) meant = of_words(key, read);
    if (!meant.empty() && object.find(meant) && nearly(key, {meant}).empty()) return;
    if (meant.empty() || both_legal(key, meant)) return;
    const Asked& about = report_.asked.at(place + "/" + std::string(meant));
    warn(message("nobody reads {}; {} reads {}, {}", key, about.class_name, meant,
                 otherwise(meant, object.find(meant), about)),
         at, message("write {}", meant));
  }

  // False where the part states the key, or says the same by its default: then nothing is lost.
  bool lost_beside(const std::string& key, const Json& value, const std::string& place,
                   const std::string& part, const Json& object) {
    const auto about = report_.asked.find(part + "/" + key);
    if (about == report_.asked.end()) return true;
    const bool rotary = contains(kRopeKeys, key);
    const bool scaled = object.find("rope_scaling") || object.find("rope_parameters");
    if (object.find(key) || about->second.otherwise == shown(value) ||
        (rotary && key != "rope_theta" && scaled) || (key == "rope_theta" && is_base(value)))
      return false;
    if (rotary || !about->second.otherwise.empty())
      warn(message("{} is {} beside {}, where nobody reads it; {} reads it inside, {}", key, value,
                   last_word(part), about->second.class_name,
                   otherwise(key, nullptr, about->second)),
           place + "/" + key, message("move it into {}", last_word(part)));
    return true;
  }

  bool rotates() const {
    return std::ranges::any_of(spec_.layers,
                               [](const LayerSpec& l) { return static_cast<bool>(l.rotary); });
  }
  bool is_base(const Json& value) const {
    return std::ranges::any_of(spec_.layers, [&](const LayerSpec& layer) {
      const FieldValue* base = layer.field("base");
      return base && value.is_number() && number_of(base->value) == value.as_number();
    });
  }

  // What applies instead: `stated` is what the file holds under the right name, null where it
  // has none.
  std::string otherwise(std::string_view key, const Json* stated, const Asked& about) const {
    if (stated && !stated->is_null()) return "which the file states too, and which is used";
    const std::string so = stated ? "which is null in the file" : "which the file does not state";
    if (!about.otherwise.empty())
      return message("{}: it is {}, the class's own", so, about.otherwise);
    const FieldValue* base = spec_.layers.empty() ? nullptr : spec_.layers[0].field("base");
    if (key == "rope_theta" && base) return message("{}: the base is {}", so, base->value);
    const Json* loss = table_member("losses").find(key);
    return so + (loss ? ": " + loss->as_string() : "");
  }

  // Rotary in an object that nobody looks into.
  void lost_in(const std::string& key, const Json& value, const std::string& place,
               const std::string& reader) {
    if (!contains(kRopeKeys, key) || value.is_null() || !rotates() ||
        report_.visited.count(place) || place == reader || report_.errors() > 0 ||
        !report_.asked.count(reader + "/" + key))
      return;  // where the reader itself does not look, moving the key would change nothing
    warn(message("nobody reads {} in {}: the positions of the model do not depend on it", key,
                 last_word(place)),
         place + "/" + key, message("move it to {}/{}", reader, key));
  }

  void dictionary(const Json& object, const std::string& place) {
    for (const auto& [key, value] : object.as_object()) {
      const std::string at = place + "/" + key;
      const std::string_view meant = nearly(key, dictionary_members());
      if (value.is_object() && contains(kRopeKeys, key))
        warn(message("nobody reads {} inside {}", key, last_word(place)), at,
             "move its members one level up");
      else if (value.is_object())
        dictionary(value, at);
      else if (!meant.empty() && !contains(dictionary_members(), key) && !both_legal(key, meant))
        warn(message("nobody reads {}; {} is read", key, meant), at, message("write {}", meant));
    }
  }

  const ModelSpec& spec_;
  Report& report_;
  std::map<std::string, Names> readers_;  // what was looked for in each object
  std::set<std::string> said_;            // places that have a finding
};

}  // namespace

std::string_view nearly(std::string_view name, const Names& known) {
  if (name.size() < 5 || name.size() > 64 || contains(known, name)) return "";
  const std::string letters = without_gaps(in_words(name));
  std::string_view best;
  for (int least = 3; const std::string_view key : known) {
    if (key.size() > letters.size() + 9 || letters.size() > key.size() + 9) continue;
    const std::string other = without_gaps(std::string(key));
    const int most = std::min(other.size() < 5 ? 0 : other.size() < 9 ? 1 : 2, least - 1);
    for (int edits = 0; edits <= most; ++edits)
      if (within(letters, other, edits)) {
        least = edits, best = key;
        break;
      }
  }
  return best;
}

std::string_view of_words(std::string_view name, const Names& known) {
  if (name.size() > 64 || contains(known, name)) return "";
  const std::string words = in_words(name);
  for (const std::string_view key : known)
    if (same_words(words, key)) return key;
  return "";
}

std::string meant_rope_member(std::string_view name) {
  const std::string_view meant = nearly(name, dictionary_members());
  return meant.empty() ? "" : message("; did you mean {}?", meant);
}

void held_keys(const ConfigView& view) {
  for (const auto& [key, how] : view.rules().uses.pairs)
    if (how == "read")
      view.report().asked.try_emplace(view.where(key), Asked{view.class_name(), ""});
  for (const auto& [key, held] : view.rules().defaults.as_object()) {
    const std::string* own = view.rules().names.find(key);
    view.report().asked.try_emplace(view.where(own ? std::string_view(*own) : key),
                                    Asked{view.class_name(), held.is_null() ? "" : shown(held)});
  }
}

void near_keys(const Json& file, const ModelSpec& spec, Report& report) {
  const std::string whole = report.file + "#";
  NearKeys found(spec, report);
  found.look(file, whole, whole);
  found.outside(file, whole);
}

}  // namespace posenc::v0::hf
