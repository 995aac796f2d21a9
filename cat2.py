import re,sys,pathlib
sys.path.insert(0,'tests/docs'); import codes
exec(open('/tmp/w/build/cat.py').read().split('# call sites')[0])
root=pathlib.Path('.')
got=set()
for p in sorted((root/'src'/'model').rglob('*.cpp')): got.update(codes.codes_of(p.read_text()))
got|={'wrong_type','not_finite','table_zero','list_length','gguf_data_missing'}
listed=re.search(r"Codes are stable:(.*?)\. More",open('docs/interfaces.md').read(),re.S).group(1)
got|=set(re.findall(r"[a-z0-9]+(?:_[a-z0-9]+)+",re.sub(r"\(.*?\)","",listed)))
page=open('docs/doctor.md').read()
got={c for c in got if f'**{c}**' in page}
paged=set(re.findall(r'\*\*([a-z0-9_]+)\*\*',page))
print(sorted(paged-got)); got|=paged
rows=[]
for c in sorted(got):
    rows.append('    {"%s", "%s"},'%(c,defaults.get(c,'')))
out='''// SPDX-License-Identifier: Apache-2.0
// Every code of a finding, with the fix of those findings that name none of their own (empty: each
// names one). docs/doctor.md says what a code means and lists the fixes; tests/docs/codes.py compares.
#pragma once
#include <string_view>

namespace posenc {

struct FindingCode {
  std::string_view code, fix;
};
// clang-format off
inline constexpr FindingCode kFindingCodes[] = {
'''+'\n'.join(rows)+'''
};
// clang-format on

}  // namespace posenc
'''
open('src/model/finding_codes.h','w').write(out)
f='src/model/diagnostics.cpp'
s=open(f).read()
i=s.index('// What to do about findings of which'); j=s.index('}  // namespace\n')
s=s[:i]+'''std::string_view default_fix(std::string_view code) {
  for (const FindingCode& known : kFindingCodes)
    if (known.code == code) return known.fix;
  return "";
}

'''+s[j:]
s=s.replace('#include <utility>\n','#include <utility>\n\n#include "model/finding_codes.h"\n')
open(f,'w').write(s)
f='src/model/diagnostics.h'
s=open(f).read()
s=s.replace('''  // Without a fix: the one that every finding of the code has.
''','''  // Without a fix: that of the code (finding_codes.h).
''')
s=s.replace('std::string where, std::string fix,\n             std::optional','std::string where, std::string fix = "",\n             std::optional').replace('std::string where, std::string fix,\n            std::optional','std::string where, std::string fix = "",\n            std::optional')
s=s.replace('''  const std::vector<Finding>& findings() const''','''  void error(std::string code, std::string message, std::string where,
             std::optional<double> value) {
    error(std::move(code), std::move(message), std::move(where), "", value);
  }
  void warn(std::string code, std::string message, std::string where, std::optional<double> value) {
    warn(std::move(code), std::move(message), std::move(where), "", value);
  }

  const std::vector<Finding>& findings() const''',1)
open(f,'w').write(s)
f='src/model/hugging_face/config_view.h'
s=open(f).read()
s=s.replace('''  // Another report on the same file''','''  // "NAME must be WANTED, got VALUE", at the value's place.
  void wrong_type(const std::string& name, const std::string& wanted, const Value& got,
                  std::string fix = "", std::optional<double> value = {});
  // Another report on the same file''')
open(f,'w').write(s)
f='src/model/hugging_face/config_view.cpp'
s=open(f).read()
s=s.replace('''void Report::merge_visits''','''void Report::wrong_type(const std::string& name, const std::string& wanted, const Value& got,
                        std::string fix, std::optional<double> value) {
  error("wrong_type", name + " must be " + wanted + ", got " + shown(got.value), got.where,
        std::move(fix), value);
}

void Report::merge_visits''')
open(f,'w').write(s)
# "" before a value
import glob
for f in glob.glob('src/model/hugging_face/**/*.cpp',recursive=True):
    s=o=open(f).read()
    s=re.sub(r'((?:\.|->)where(?:\([^()]*\))?), "",\s',r'\1, ',s)
    if s!=o: open(f,'w').write(s)
# docs
f='docs/doctor.md'
table='\n## Fixes that go with a code\n\nA finding of these codes that names no better fix has this one.\n\n| code | fix |\n|---|---|\n'+''.join(f'| `{c}` | {d} |\n' for c,d in sorted(defaults.items()))
s=open(f).read()
if '## Fixes that go' not in s: s=s.rstrip('\n')+'\n'+table
open(f,'w').write(s)
f='tests/docs/codes.py'
s=open(f).read()
s=s.replace('''"""Every code of a finding, in the sources of the reader and in docs/interfaces.md, has a paragraph in docs/doctor.md."""''','''"""Every code of a finding, in the sources of the reader and in docs/interfaces.md, stands in src/model/finding_codes.h and
has a paragraph in docs/doctor.md, whose table of fixes is that of the header."""''')
s=s.replace('''    missing = [code for code in sorted(codes) if f"**{code}**" not in page]
''','''    catalogue = dict(re.findall(r'\\{"(\\w+)", "(.*)"\\}', (root / "src" / "model" / "finding_codes.h").read_text()))
    missing = ["src/model/finding_codes.h lacks " + code for code in sorted(codes - catalogue.keys())]
    missing += [f"docs/doctor.md has no paragraph on {code}" for code in sorted(catalogue) if f"**{code}**" not in page]
    fixes = re.findall(r"^\\| `(\\w+)` \\| (.*) \\|$", page, re.M)
    if fixes != sorted((code, fix) for code, fix in catalogue.items() if fix):
        missing.append("docs/doctor.md lists other fixes than src/model/finding_codes.h")
''')
s=s.replace('''    print("\\n".join("docs/doctor.md has no paragraph on " + m for m in missing) or''','''    print("\\n".join(missing) or''')
open(f,'w').write(s)
