import re,glob,sys,subprocess
sys.path.insert(0,'tests/docs'); import codes,pathlib
defaults={
"assumed":"check it against the model's code",
"both_spellings":"keep the one that is right",
"encoding_not_covered":"read the model's code for what the message says; the rest is described",
"factor_below_one":"state new length / trained length",
"key_ignored":"nothing to do",
"layer_types_length":"one entry a layer",
"list_length":"take the list of the model's own file",
"no_layers":"state how many layers the model has",
"no_rotary":"nothing to do; posenc explain shows what acts in its place",
"not_finite":"write a plain number",
"sections_sum":"sections count pairs, and all pairs",
"table_missing":"take the tensor from the model's own checkpoint",
"tower_not_covered":"read that part's code; the other parts are described",
"wrong_type":"write a plain number",
}
# call sites
n=0
for f in glob.glob('src/model/**/*.cpp',recursive=True):
    s=o=open(f).read()
    # must_be
    pat=re.compile(r'report\(\)\.error\(\s*"wrong_type",\s*((?:std::string\(\w+\)|\w+|text\(rule, "key"\))\s*\+\s*"|")( ?|[\w ]+ )must be ([^"]*), got "\s*\+\s*shown\((\w+)(->|\.)value\),\s*\4(?:->|\.)where,\s*')
    def rep(m):
        pre,lit,rule,var,op=m.groups()
        if pre=='"':
            if not lit.strip(): return m.group(0)
            name='"'+lit.strip()+'"'
        else:
            if lit.strip(): return m.group(0)
            name=re.sub(r'\s*\+\s*"$','',pre)
        return 'report().wrong_type(%s, "%s", %s%s, '%(name,rule,'*' if op=='->' else '',var)
    s=pat.sub(rep,s)
    # default fixes
    out='';i=0
    for call in list(re.finditer(r'\b(error|warn|note|add|wrong_type)\(',s)):
        pass
    for code,fix in defaults.items():
        lit='"%s"'%fix
        pos=0
        while True:
            k=s.find(lit,pos)
            if k<0: break
            # find nearest preceding call with this code
            begin=max(s.rfind('error("%s"'%code,0,k),s.rfind('warn("%s"'%code,0,k),s.rfind('note("%s"'%code,0,k),s.rfind('error(\n',0,k) if 0 else -1)
            m=None
            for mm in re.finditer(r'\b(error|warn|note)\(\s*"%s"'%code,s[:k]): m=mm
            pos=k+1
            if m and ';' not in s[m.end():k]:
                after=s[k+len(lit):].lstrip()
                if after.startswith(')'):
                    # drop with preceding comma
                    j=s.rstrip; h=s[:k].rstrip()
                    assert h.endswith(','),(f,code)
                    s=h[:-1]+s[k+len(lit):]
                elif after.startswith(','):
                    s=s[:k]+'""'+s[k+len(lit):]
    if code=='wrong_type': pass
    s=re.sub(r'(wrong_type\([^;]*?), "write a plain number"\)',r'\1)',s)
    if s!=o: open(f,'w').write(s); n+=1
print(n,'files')
