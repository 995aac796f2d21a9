import subprocess,sys,os,glob,json,hashlib,concurrent.futures as cf
C='/tmp/w/corpus'; mode=sys.argv[1]; binary=sys.argv[2]
OUT='/tmp/w/base_answers.json'
import random
files=sorted(os.listdir(C))
step=int(os.environ.get('EVERY','1'))
muts=[f for f in files if f.startswith('mut')]; plain=[f for f in files if not f.startswith('mut')]
if mode!='base': files=sorted(plain[::step]+muts[::4*step]) if os.environ.get('ALL')!='1' else files
BASE='/tmp/b/base/build/bin/posenc'
def one(f,binary=binary):
    r=[]
    for a in (['explain',f,'--json'],['doctor',f,'--json']):
        try: p=subprocess.run([binary]+a,cwd=C,stdout=subprocess.PIPE,stderr=subprocess.PIPE,timeout=60,env={'PATH':'/usr/bin','POSENC_NUM_THREADS':'1'})
        except subprocess.TimeoutExpired: r.append('timeout'); continue
        r.append([p.returncode,p.stdout.decode(errors='replace'),p.stderr.decode(errors="replace").replace("      fix:   ","      mend:  ")])
    if f.endswith('.gguf') or 'file_' in f:
        p=subprocess.run([binary,'explain',f,'--json','--reader','llama_cpp' if f.endswith('json') else 'transformers'],cwd=C,stdout=subprocess.PIPE,stderr=subprocess.PIPE,timeout=60)
        r.append([p.returncode,p.stdout.decode(errors='replace'),p.stderr.decode(errors="replace").replace("      fix:   ","      mend:  ")])
    return f,r
with cf.ThreadPoolExecutor(2) as ex: res=dict(ex.map(one,files))
import difflib
H=json.load(open('/tmp/w/base_hash.json')); bad=0
for f in files:
    if hashlib.md5(json.dumps(res[f]).encode()).hexdigest()!=H[f]:
        bad+=1
        if bad<=int(sys.argv[3]):
            base=one(f,BASE)[1]
            print('==',f, open(C+'/'+f,'rb').read(300) if f.endswith('json') else '')
            for x,y,w in zip(base,res[f],('explain','doctor','other')):
                if x!=y:
                    print(w,'exit',x[0],y[0])
                    a='\n'.join(x[1:]) ; b='\n'.join(y[1:])
                    for l in list(difflib.unified_diff(a.splitlines(),b.splitlines(),n=0,lineterm=''))[2:14]: print('  ',l[:300])
                    break
print(f'{bad} of {len(files)} differ')
