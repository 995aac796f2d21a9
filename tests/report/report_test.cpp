// SPDX-License-Identifier: Apache-2.0
// Reports as a library has them: nothing is printed, arrays stay in memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "posenc/model/read.h"
#include "posenc/report/bias.h"
#include "posenc/report/command_line.h"
#include "posenc/report/doctor.h"
#include "posenc/report/explain.h"
#include "posenc/report/plot.h"
#include "posenc/report/report_c.h"
#include "posenc/report/table.h"
#include "posenc/report/verb.h"

namespace posenc::report {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kModels = POSENC_SOURCE_DIR "/examples/models/";

std::vector<std::string> words(std::vector<std::string> of_verb) {
  of_verb.insert(of_verb.begin(), "posenc");
  return of_verb;
}

// Two heads of ALiBi have the slopes 2^-4 and 2^-8.
TEST(Report, BiasIsAnArray) {
  BiasOptions o;
  o.subject.text = "alibi";
  o.heads = 2;
  o.positions = "0:2";
  const Report made = bias(o);
  EXPECT_EQ(made.arrays.at("bias").shape, (std::vector<Index>{2, 2, 2}));
  EXPECT_EQ(made.arrays.at("bias").doubles(),
            (std::vector<double>{0, -0.0625, -0.0625, 0, 0, -0.00390625, -0.00390625, 0}));
}

TEST(Report, TableIsAnArrayInMemoryAndATextElsewhere) {
  TableOptions o;
  o.subject.text = "rope head_dim=4 base=100 pairing=half_split";
  o.what = "inv_freq";
  Request in_memory;
  in_memory.in_memory = true;
  EXPECT_EQ(table(o, in_memory).arrays.at("inv_freq").doubles(), (std::vector<double>{1, 0.1}));
  EXPECT_THAT(table(o, {}).text, HasSubstr("frequency [rad/position]"));
}

TEST(Report, PlotIsAPictureAndItsNumbers) {
  PlotOptions o;
  o.subject.text = "alibi";
  o.kind = "bias";
  o.heads = 2;
  Request r;
  r.format = "svg";
  r.json = true;
  const Report made = plot(o, r);
  EXPECT_THAT(*made.bytes, StartsWith("<svg"));
  const Json numbers = parse_json(made.text, "plot");
  EXPECT_EQ(numbers.at("schema").as_string(), "posenc.plot/1");
  EXPECT_EQ(numbers.at("kind").as_string(), "bias");
  EXPECT_EQ(numbers.at("figures").as_array().size(), 1u);
}

TEST(Report, ExplainAndDoctorAreTexts) {
  const ModelSpec m = read_model(kModels + "llama-3.1-8b");
  EXPECT_THAT(explain_text(m, std::nullopt), HasSubstr("tokens of context"));
  EXPECT_THAT(explain_text(m, 3), HasSubstr("where each value comes from"));
  EXPECT_THAT(explain_text(m, 3, {true}), HasSubstr("\x1b[1m"));
  EXPECT_THAT(doctor_text(m.file, doctor(m), true), HasSubstr("float32_angle"));
}

// Remarks and data have their own ways; without anybody to take them nothing fails.
TEST(CommandLine, GoesToTheConsoleAlone) {
  std::string out, notes;
  const Console console{.out = [&](std::string_view text) { out += text; },
                        .note = [&](std::string_view text) { notes += text; }};
  const auto table_of = words({"table", kModels + "gemma-3-1b", "--what", "inv_freq", "--positions",
                               "0:4", "-o", "-", "--format", "csv"});
  EXPECT_EQ(run_command(table_of, console), 0);
  EXPECT_THAT(out, StartsWith("inv_freq\n"));
  EXPECT_THAT(notes, HasSubstr("layers rotate differently"));
  EXPECT_EQ(run_command(table_of, {}), 0);
  EXPECT_EQ(run_command(words({"doctor", kModels + "broken"}), {}), 1);
  EXPECT_THROW(run_command(words({"frobnicate"}), {}), UsageError);
  EXPECT_THROW(run_command(words({"bias", "alibi", "--positions", "0:2", "--heads", "2"}), {}),
               UsageError);  // -o
  EXPECT_THROW(run_command(words({"selftest"}), {}), UsageError);
}

TEST(CommandLine, ReportsStayInMemory) {
  const Report made = report_of(words({"bias", "alibi", "--positions", "0:2", "--heads", "2"}));
  EXPECT_EQ(made.schema, "posenc.bias/1");
  EXPECT_EQ(made.arrays.size(), 1u);
  EXPECT_THAT(*report_of(words({"plot", "alibi", "--kind", "bias", "--heads", "2"})).bytes,
              StartsWith("<svg"));
  EXPECT_THAT(report_of(words({"--version"})).text, StartsWith("posenc "));
}

// Each word has a help text, a verb an example, and no two words one name.
TEST(Verbs, AreWholeEntries) {
  for (const Verb* verb : verbs()) {
    Words all;
    EXPECT_TRUE(verb->declare(all)) << verb->name;
    EXPECT_EQ(find_verb(verb->name), verb);
    EXPECT_THAT(verb->examples, HasSubstr(std::string("posenc ") + verb->name));
    std::set<std::string> names;
    for (const Word& word : all.all()) {
      EXPECT_TRUE(names.insert(word.name()).second) << verb->name << " " << word.names;
      EXPECT_FALSE(word.help.empty()) << verb->name << " " << word.names;
    }
  }
}

TEST(ReportInC, GivesTheTextAndItsSize) {
  const std::string model = kModels + "broken";
  const char* doctor[] = {"doctor", model.c_str(), "--json"};
  size_t needed = 0;
  int negative = -1;
  posenc_error error{.struct_size = sizeof(posenc_error), .message = {}};
  ASSERT_EQ(posenc_report(doctor, 3, nullptr, 0, &needed, &negative, &error), POSENC_OK);
  EXPECT_EQ(negative, 1);
  std::string text(needed, '?');
  ASSERT_EQ(posenc_report(doctor, 3, text.data(), text.size(), &needed, nullptr, &error),
            POSENC_OK);
  EXPECT_THAT(text, StartsWith("{\n  \"schema\": \"posenc.doctor/1\""));
  EXPECT_EQ(text.back(), '\0');
  char little[5] = "????";
  ASSERT_EQ(posenc_report(doctor, 3, little, sizeof little, &needed, nullptr, &error), POSENC_OK);
  EXPECT_STREQ(little, "{\n  ");
}

TEST(ReportInC, SaysWhatIsWrong) {
  size_t needed = 0;
  posenc_error error{.struct_size = sizeof(posenc_error), .message = {}};
  const char* verb[] = {"frobnicate"};
  EXPECT_EQ(posenc_report(verb, 1, nullptr, 0, &needed, nullptr, &error), POSENC_INVALID_ARGUMENT);
  EXPECT_THAT(error.message, HasSubstr("no verb is called"));
  const char* none[] = {"explain", "none.gguf"};
  EXPECT_EQ(posenc_report(none, 2, nullptr, 0, &needed, nullptr, &error), POSENC_BAD_FILE);
  EXPECT_THAT(error.message, HasSubstr("none.gguf"));
  const char* hole[] = {"explain", nullptr};
  EXPECT_EQ(posenc_report(hole, 2, nullptr, 0, &needed, nullptr, &error), POSENC_INVALID_ARGUMENT);
  EXPECT_EQ(posenc_report(nullptr, 0, nullptr, 0, &needed, nullptr, &error),
            POSENC_INVALID_ARGUMENT);
  EXPECT_EQ(posenc_report(none, 2, nullptr, 8, &needed, nullptr, &error), POSENC_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace posenc::report
