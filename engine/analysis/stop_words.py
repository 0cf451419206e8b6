"""Stop words of other languages than English: Snowball's lists, and lists of this package for its other stemmers.

Left out are words that have other meanings, for example ``été`` (French, summer), ``estado`` (Spanish, state) and
``Weg`` (German, path). Snowball's lists are under a BSD licence (see NOTICE). Indexes depend on them: a change is
a new version of the rules.
"""

from __future__ import annotations

__all__ = ["LATER_STOP_WORDS", "STOP_WORDS"]

STOP_WORDS = {
    "danish": """
ad af alle alt anden at blev blive bliver da de dem den denne der deres det dette dig din disse dog du efter
eller en end er et for fra ham han hans har havde have hende hendes her hos hun hvad hvis hvor i ikke ind jeg jer
jo kunne man mange med meget men mig min mine mit mod ned noget nogle nu når og også om op os over på selv sig
sin sine sit skal skulle som sådan thi til ud under var vi vil ville vor være været
""",
    "dutch": """
aan al alles als altijd andere ben bij daar dan dat de der deze die dit doch doen door dus een eens en er ge geen
geweest haar had heb hebben heeft hem het hier hij hoe hun iemand iets ik in is ja je kan kon kunnen maar me meer
men met mij mijn moet na naar niet niets nog nu of om omdat onder ons ook op over reeds te tegen toch toen tot u
uit uw van veel voor want waren was wat werd wezen wie wil worden wordt zal ze zelf zich zij zijn zo zonder zou
""",
    "finnish": """
ei eivät emme en et ette että he heidän heidät heihin heille heillä heiltä heissä heistä heitä hän häneen hänelle
hänellä häneltä hänen hänessä hänestä hänet häntä itse ja johon joiden joihin joiksi joilla joille joilta joina
joissa joista joita joka joksi jolla jolle jolta jona jonka jos jossa josta jota jotka kanssa keiden keihin
keiksi keille keillä keiltä keinä keissä keistä keitä keneen keneksi kenelle kenellä keneltä kenen kenenä kenessä
kenestä kenet ketkä ketä koska kuin kuka kun me meidän meidät meihin meille meillä meiltä meissä meistä meitä
mihin miksi mikä mille millä miltä minkä minua minulla minulle minulta minun minussa minusta minut minuun minä
missä mistä mitkä mitä mukaan mutta ne niiden niihin niiksi niille niillä niiltä niin niinä niissä niistä niitä
noiden noihin noiksi noilla noille noilta noin noina noissa noista noita nuo nyt näiden näihin näiksi näille
näillä näiltä näinä näissä näistä näitä nämä ole olemme olen olet olette oli olimme olin olisi olisimme olisin
olisit olisitte olisivat olit olitte olivat olla olleet ollut on ovat poikki se sekä sen siihen siinä siitä siksi
sille sillä siltä sinua sinulla sinulle sinulta sinun sinussa sinusta sinut sinuun sinä sitä tai te teidän teidät
teihin teille teillä teiltä teissä teistä teitä tuo tuohon tuoksi tuolla tuolle tuolta tuon tuona tuossa tuosta
tuota tähän täksi tälle tällä tältä tämä tämän tänä tässä tästä tätä vaan vai vaikka yli
""",
    "french": """
ai aie aient aies ait as au aura aurai auraient aurais aurait auras aurez auriez aurions aurons auront aux
avaient avais avait avec avez aviez avions avons ayant ayez ayons c ce ceci cela ces cet cette d dans de des du
elle en es est et eu eue eues eurent eus eusse eussent eusses eussiez eussions eut eux eûmes eût eûtes furent fus
fusse fussent fusses fussiez fussions fut fûmes fût fûtes ici il ils j je l la le les leur leurs lui m ma mais me
mes moi mon même n ne nos notre nous on ont ou par pas pour qu que quel quelle quelles quels qui s sa sans se
sera serai seraient serais serait seras serez seriez serions serons seront ses soi soient sois soit sommes son
sont soyez soyons suis sur t ta te tes toi ton tu un une vos votre vous y à étaient étais était étant étiez
étions êtes
""",
    "german": """
aber alle allem allen aller alles als also am an ander andere anderem anderen anderer anderes anderm andern
anderr anders auch auf aus bei bin bis bist da damit dann das dasselbe dazu daß dein deine deinem deinen deiner
deines dem demselben den denn denselben der derer derselbe derselben des desselben dessen dich die dies diese
dieselbe dieselben diesem diesen dieser dieses dir doch dort du durch ein eine einem einen einer eines einig
einige einigem einigen einiger einiges einmal er es etwas euch euer eure eurem euren eurer eures für gegen
gewesen hab habe haben hat hatte hatten hier hin hinter ich ihm ihn ihnen ihr ihre ihrem ihren ihrer ihres im in
indem ins ist jede jedem jeden jeder jedes jene jenem jenen jener jenes jetzt kann kein keine keinem keinen
keiner keines können könnte man manche manchem manchen mancher manches mein meine meinem meinen meiner meines
mich mir mit muss musste nach nicht nichts noch nun nur ob oder ohne sehr sein seine seinem seinen seiner seines
selbst sich sie sind so solche solchem solchen solcher solches soll sollte sondern sonst um und uns unse unsem
unsen unser unses unter viel vom von vor war waren warst was weil weiter welche welchem welchen welcher welches
wenn werde werden wie wieder will wir wird wirst wo wollen wollte während würde würden zu zum zur zwar zwischen
über
""",
    "hungarian": """
a abban ahhoz ahogy ahol aki akik akkor alatt amely amelyek amelyekben amelyeket amelyet amelynek ami amikor amit
amolyan amíg annak arra arról az azok azon azonban azt aztán azután azzal azért be belül benne bár csak de e
ebben eddig egy egyes egyetlen egyik egyre egyéb egész ehhez ekkor el ellen első elég elő először előtt emilyen
ennek erre ez ezek ezen ezt ezzel ezért fel felé hanem hiszen hogy hogyan igen ill illetve ilyen ilyenkor ismét
ison itt jobban jó jól kell kellett keresztül ki kívül között közül legalább legyen lehet lehetett lenne lenni
lesz lett maga magát majd meg mellett mely melyek mert mi mikor milyen minden mindenki mindent mindig mint mintha
mit mivel miért most már más másik még míg nagy nagyobb nagyon ne nekem neki nem nincs néha néhány nélkül olyan
ott pedig persze rá s saját sem semmi sok sokat sokkal szemben szerint szinte számára talán tehát teljes tovább
továbbá több ugyanis után utána vagy vagyis vagyok valaki valami valamint való van vannak vele vissza viszont
volna volt voltak voltam voltunk által általában át én éppen és így össze úgy új újabb újra ő ők őket
""",
    "italian": """
a abbia abbiamo abbiano abbiate ad agl agli ai al all alla alle allo anche avemmo avendo avesse avessero avessi
avessimo aveste avesti avete aveva avevamo avevano avevate avevi avevo avrai avranno avrebbe avrebbero avrei
avremmo avremo avreste avresti avrete avrà avrò avuta avute avuti avuto c che chi ci coi col come con contro cui
da dagl dagli dai dal dall dalla dalle dallo degl degli dei del dell della delle dello di dov dove e ebbe ebbero
ebbi ed era erano eravamo eravate eri ero essendo faccia facciamo facciano facciate faccio facemmo facendo
facesse facessero facessi facessimo faceste facesti faceva facevamo facevano facevate facevi facevo fai fanno
farai faranno farebbe farebbero farei faremmo faremo fareste faresti farete farà farò fece fecero feci fosse
fossero fossi fossimo foste fosti fu fui fummo furono gli ha hai hanno ho i il in io l la le lei li lo loro lui
ma mi mia mie miei mio ne negl negli nei nel nell nella nelle nello noi non nostra nostre nostri nostro o per
perché più quale quanta quante quanti quanto quella quelle quelli quello questa queste questi questo sarai
saranno sarebbe sarebbero sarei saremmo saremo sareste saresti sarete sarà sarò se sei si sia siamo siano siate
siete sono sta stai stando stanno starai staranno starebbe starebbero starei staremmo staremo stareste staresti
starete starà starò stava stavamo stavano stavate stavi stavo stemmo stesse stessero stessi stessimo steste
stesti stette stettero stetti stia stiamo stiano stiate sto su sua sue sugl sugli sui sul sull sulla sulle sullo
suo suoi ti tra tu tua tue tuo tuoi tutti tutto un una uno vi voi vostra vostre vostri vostro è
""",
    "norwegian": """
alle at av bare begge ble blei bli blir blitt både båe da de deg dei deim deira deires dem den denne der dere
deres det dette di din disse ditt du dykk dykkar då eg ein eit eitt eller elles en enn er et ett etter for fordi
fra før ha hadde han hans har hennar henne hennes her hjå ho hoe honom hoss hossen hun hva hvem hver hvilke
hvilken hvis hvor hvordan hvorfor i ikke ikkje ingen ingi inkje inn inni ja jeg kan kom korleis korso kun kunne
kva kvar kvarhelst kven kvi kvifor man mange me med medan meg meget mellom men mi min mine mitt mot mykje ned no
noe noen noka noko nokon nokor nokre nå når og også om opp oss over på samme seg selv si sia sidan siden sin sine
sitt sjøl skal skulle slik so som somme somt så sånn til um upp ut uten var vart varte ved vere verte vi vil
ville vore vors vort vår være vært å
""",
    "portuguese": """
a ao aos aquela aquelas aquele aqueles aquilo as até com como da das de dela delas dele deles depois do dos e ela
elas ele eles em entre era eram essa essas esse esses esta estamos estas estava estavam este esteja estejam
estejamos estes esteve estive estivemos estiver estivera estiveram estiverem estivermos estivesse estivessem
estivéramos estivéssemos estou está estávamos estão eu foi fomos for fora foram forem formos fosse fossem fui
fôramos fôssemos haja hajam hajamos havemos hei houve houvemos houver houvera houveram houverei houverem
houveremos houveria houveriam houvermos houverá houverão houveríamos houvesse houvessem houvéramos houvéssemos há
hão isso isto já lhe lhes mais mas me mesmo meu meus minha minhas muito na nas nem no nos nossa nossas nosso
nossos num numa não nós o os ou para pela pelas pelo pelos por qual quando que quem se seja sejam sejamos sem
serei seremos seria seriam será serão seríamos seu seus somos sou sua suas são só também te tem temos tenha
tenham tenhamos tenho terei teremos teria teriam terá terão teríamos teu teus teve tinha tinham tive tivemos
tiver tivera tiveram tiverem tivermos tivesse tivessem tivéramos tivéssemos tu tua tuas tém tínhamos um uma você
vocês vos à às éramos
""",
    "russian": """
а без более больше будет будто бы был была были было быть в вам вас вдруг ведь во вот впрочем все всегда всего
всех всю вы где да даже для до другой его ее ей ему если есть еще ж же за зачем здесь и из или им иногда их к
кажется как какая какой когда конечно кто куда ли лучше между меня мне много может можно мой моя мы на над надо
наконец нас не него нее ней нельзя нет ни нибудь никогда ним них ничего но ну о об один он она они опять от перед
по под после потом потому почти при про разве с сам свою себе себя сейчас со совсем так такой там тебя тем теперь
то тогда того тоже только том тот тут ты у уж уже хоть чего чем через что чтоб чтобы чуть эти этого этой этом
этот эту я
""",
    "spanish": """
a al algo algunas algunos ante antes como con contra cual cuando de del desde donde durante e el ella ellas ellos
en entre era erais eran eras eres es esa esas ese eso esos esta estaba estabais estaban estabas estad estada
estadas estamos estando estar estaremos estará estarán estarás estaré estaréis estaría estaríais estaríamos
estarían estarías estas este estemos esto estos estoy estuve estuviera estuvierais estuvieran estuvieras
estuvieron estuviese estuvieseis estuviesen estuvieses estuvimos estuviste estuvisteis estuviéramos estuviésemos
estuvo está estábamos estáis están estás esté estéis estén estés fue fuera fuerais fueran fueras fueron fuese
fueseis fuesen fueses fui fuimos fuiste fuisteis fuéramos fuésemos ha habida habidas habido habidos habiendo
habremos habrá habrán habrás habré habréis habría habríais habríamos habrían habrías habéis había habíais
habíamos habían habías han has hasta hay haya hayamos hayan hayas hayáis he hemos hube hubiera hubierais hubieran
hubieras hubieron hubiese hubieseis hubiesen hubieses hubimos hubiste hubisteis hubiéramos hubiésemos hubo la las
le les lo los me mi mis mucho muchos muy más mí mía mías mío míos nada ni no nos nosotras nosotros nuestra
nuestras nuestro nuestros o os otra otras otro otros para pero poco por porque que quien quienes qué se sea
seamos sean seas seremos será serán serás seré seréis sería seríais seríamos serían serías seáis sido siendo sin
sobre sois somos son soy su sus suya suyas suyo suyos sí también tanto te tendremos tendrá tendrán tendrás tendré
tendréis tendría tendríais tendríamos tendrían tendrías tened tenemos tenga tengamos tengan tengas tengo tengáis
tenida tenidas tenido tenidos teniendo tenéis tenía teníais teníamos tenían tenías ti tiene tienen tienes todo
todos tu tus tuve tuviera tuvierais tuvieran tuvieras tuvieron tuviese tuvieseis tuviesen tuvieses tuvimos
tuviste tuvisteis tuviéramos tuviésemos tuvo tuya tuyas tuyo tuyos tú un una uno unos vosotras vosotros vuestra
vuestras vuestro vuestros y ya yo él éramos
""",
    "swedish": """
alla allt att av blev bli blir blivit de dem den denna deras dess dessa det detta dig din dina ditt du där då
efter ej eller en er era ert ett från för ha hade han hans har henne hennes hon honom hur här i icke ingen inom
inte jag ju kan kunde man med mellan men mig min mina mitt mot mycket ni nu när någon något några och om oss på
samma sedan sig sin sina sitta själv skulle som så sådan sådana sådant till under upp ut utan vad var vara varför
varit varje vars vart vem vi vid vilka vilkas vilken vilket vår våra vårt än är åt över
""",
}
"""By the name of the stemmer: words between white space."""

LATER_STOP_WORDS = {
    "arabic": """
أن أنا أنت أنه أو أي أين إذا إلا إلى إن ال التي الذي الذين اللتان اللذان الى ان او ب بعض به بها بين تلك ثم حتى
حيث ذلك على عليه عليها عن عند عندما غير ف فقط في فيه فيها قد كان كانت كل كم كما كيف ل لا لقد لكن لم لماذا لن له
لها ليس ما ماذا متى مثل مع مما من منذ منه منها هذا هذه هل هم هن هنا هناك هو هي و وهو وهي يا يكون
""",
    "armenian": """
այդ այլ այն այս արդեն բայց բոլոր դա դու դուք եթե եմ են ենք ես երբ եւ եք է էի էին էր ըստ թե ի ինչ ինչու ինչպես իր
իրեն իրենց համար հետ հետո մեզ մենք մեջ մեր մի մինչ նա նաև նրա նրան նրանց նրանք ոչ ով որ որի որոնք որպես որտեղ ու
ում սա վրա և
""",
    "basque": """
al ala arabera baina baino bat batzuk bera beraiek bere berriz beste bezala da dago dela den dira ditu du dute
eta ez ezin gara gu guztiak haiek hau hauek hori horiek hura izan naiz ni nik noiz nola nolako non nor zein zen
zer zergatik ziren zu zuek zuen zuten
""",
    "catalan": """
això al allò als amb aquell aquella aquest aquesta aquestes aquests com de del dels des doncs el ell ella elles
ells els em en ens era eren es estan està fins ha han havia he hem hi ho i jo la les li llur lo meu meva molt
més ni no nosaltres o on per perquè però qual quals quan quant que qui quin quina quines quins què se seu seus
seva seves si sobre sota són també tan tot tota totes tots tu un una unes uns us va van vosaltres és
""",
    "czech": """
a aby ale ani asi až bez bude budou by byl byla byli bylo co další do ho i jak jako je jeho jej jejich její
jen ještě ji jiné již jsem jsme jsou jste já k kam kde kdo kdy když ke která které který kteří ku ma mají mezi
mi mnou mně mít můj na nad ne nebo nejsou není než nic nám námi nás náš o od on ona oni ono pak po pod podle
pokud pouze pro proto protože proč před při s se si sice svůj ta tak také takže tam te tedy ten to toho tom
tomto tomu tu ty tě u už v ve vám váš více však vše z za zda ze či že
""",
    "esperanto": """
al ankaŭ aŭ da de do dum el en estas esti estis estos ili ilia iu iuj ja jen kaj ke kial kiam kie kiel kies kio
kion kiu kiuj kiun kun la li lia mi mia ne nek ni nia ol per plu por post pri se sed si sia sub sur tamen tia
tio tion tiu tiuj tro tuj vi via ĉar ĉi ĉiu ĉiuj ĉu ĝi ĝia ĝis ŝi ŝia
""",
    "estonian": """
aga ega ehk ei enam et ja jah juba ka kas keda kelle kes kuhu kui kuid kuidas kus kust ma me meie mida miks
millal mille millest mina minu mis mitu mu nad need nemad nende nii ning nüüd oled oleme olen olete oli olid
olla oma on pole sa seda see sel selle selles sest siis sina sinu ta te teda teie tema too või
""",
    "greek": """
ένα έναν ένας ή ήταν αλλά αν αντί απ από αυτά αυτές αυτή αυτήν αυτοί αυτού αυτό αυτόν αυτός αυτών για γιατί δε
δεν εάν είμαι είμαστε είναι είσαι εγώ εκεί εκείνα εκείνες εκείνη εκείνο εκείνοι εκείνος εκείνων εμείς ενός ενώ
επίσης εσείς εσύ η θα και κατά κι μία μα μας με μετά μη μην μια μιας μου να ο οι ποια ποιας ποιες ποιο ποιοι
ποιον ποιος ποιου ποιους ποιων πολύ που πού προς πόσα πόσες πόσο πόσοι πώς σας σε σου στα στη στην στης στις στο
στον στους όταν τα τη την της τι τις το τον του τους των τότε τώρα ως ό όμως όπου όπως όσα όσο όσοι ότι
""",
    "hindi": """
अपना अपनी अपने अब आदि आप इन इस इसका इसकी इसके इसमें इसी उन उनका उनकी उनके उन्हें उन्होंने उस उसका उसकी उसके उसने
उसे एक एवं ऐसे और कई कब कर करता करते करने करें कहा कहाँ का कि कितना कितनी कितने किया किस किसने किसी किसे की कुछ
के कैसे को कोई कौन कौनसा क्या क्यों गई गए गया जब जहाँ जा जाता जाती जाते जिन जिनके जिस जिसका जिसकी जिसके जिसने
जिसमें जो तक तथा तब तो था थी थे दिया द्वारा नहीं ना ने पर फिर बहुत भी में मेरा मैं यदि यह यहाँ यही या ये रहा रही
रहे लिए लेकिन व वह वहाँ वाला वाली वाले वे सभी साथ से ही हुआ हुई हुए है हैं हो होता होती होते होना
""",
    "indonesian": """
ada adalah agar akan aku anda antara apa apakah atau bagaimana bagi bahwa banyak beberapa belum berapa bisa
bukan dalam dan dapat dari daripada dengan di dia ia ini itu jika juga kalau kami kamu kapan karena ke kepada
ketika kita lain lebih maka mana manakah masih mengapa menjadi mereka namun oleh pada para pernah pun saat
sangat saya sebagai sebuah secara sedang sehingga sejak seperti serta setelah siapa suatu sudah supaya tanpa
telah tentang tersebut tetapi tidak untuk yaitu yang
""",
    "irish": """
a ach ag agus an ann ar as atá bhfuil bhí cad cathain chuig chun conas cá cé cén de den do don dá eile faoi
freisin féin gan go gur i iad in is le leis lena mar mo muid má mé na nach nuair ní níl níor nó os roimh sa san
seo siad sibh sin sna srl sular sé sí tar thar tá tú um é í ó ón
""",
    "lithuanian": """
ant apie ar arba aš bei bet bus buvo būti dar du dėl iki ir iš jai jam jau jei jeigu ji jie jiems jis jo jos jūs
jų kad kada kai kaip kam kas kiek kita kiti kodėl kol kur kuri kurie kurio kurios kuris kurių ką man mano mes
mus mūsų ne nei nes net no nuo nėra o pagal per po prie prieš pro sau savo su ta tai taigi taip tas tačiau tie
to tos tu tų už yra į
""",
    "nepali": """
अझ अनि अब अर्को आज आफू आफ्नो उनको उनले उनी एउटा एक कति कसरी कसले कहाँ कहिले का कि किन की कुन कुनै के को कोही गरे
गरेको गर्छ गर्न छ छन् छैन जब जसले जस्तो जुन जो त तथा तर त्यस त्यसको त्यसले त्यो थिए थियो देखि न नै पनि पर्छ बाट
भए भएको भने भन्ने म मा मात्र मेरो यदि यस यसको यसले यी यो र रे लागि ले वा सँग सबै हामी हुन हुने हुन्छ हो
""",
    "persian": """
آن آنان آنها آیا از است اند او اگر این اینها با باید بر برای به بود بودند بی تا تو خواهد خود در درباره دیگر را
روی زیرا شد شده شما شود ما من مگر می نمی نه نیز نیست ها های هر هست هستند هم همان همه همین و ولی پس پیش چرا چند
چه چون چگونه چیست کجا کدام کرد کند کنند که کی یا یک
""",
    "polish": """
a aby albo ale ani bardzo bez bo by być był była było były będzie będą ci cię co czy czyli czym dla do gdy gdzie
go i ich ile im iż ja jak jaka jaki jakie jako je jednak jego jej jemu jest jestem jeszcze jeśli już kiedy kim
kto która które którego której który których którym którzy lecz lub ma mają mi mnie mną mu my na nad nam nas
nasz nawet nic nich nie niego niej nim niż o od on ona one oni ono oraz po pod podczas ponieważ poza przed przez
przy się sobie swoje swoją swój są ta tak także tam te tego tej ten też to tobie tu ty tych tylko tym w was we
więc wszystko z za ze że
""",
    "romanian": """
a acea aceasta această aceea acei aceia acel acela acele acelea acest acesta aceste acestea acestei acestor
acestui acești aceștia ai aia al ale alt alta alte altă am ar are asta astfel atât au avea avem aveți avut aș
ați ca care ce cea cei cel cele cine cu cum când cât câte câți că căror cărora cărui către da dacă dar de deci
din dintre după ea ei el ele era erau este eu face fi fie fiecare fost i iar la le li lor lui lângă mai mea mei
mele meu mi mă ne nici nimic noastre noastră noi nostru nu o or ori pe pentru peste pot prea prin sa sale sau se
sub sunt suntem sunteți să său ta te toate tot toți tu un una unde unei unele unii unor unui unul va voi vom vor
vostru vă îi îl îmi în într între își îți și
""",
    "serbian": """
a ako ali bez bi bila bile bili bilo bio biti da do dok ga gde i ih ili im iz ja je jer jesam jesu joj još kad
kada kako kao ko koga koja koje koji kojih kojim koliko kome ku međutim mi mu na nad nakon nam nas naš ne nego
neki ni nije nisu njega njegov njegova njih njihov nju o od on ona oni ono pa po pod pored posle pre prema pri s
sa sam samo se smo ste su sve svi svoj ta tada taj tako te ti to toga tome tu u uz već vi za zašto će šta što
""",
    "sesotho": """
a ba bane bona e ea empa ene eo feela ha haholo hape ho hobane hore ka kapa ke la le lena leo mme na nako ne
neng ntle o oa re sa se seo tla tlo tsa tse tsena wa ya yena
""",
    "tamil": """
அதன் அது அதை அந்த அல்லது அவன் அவர் அவர்கள் அவள் அவை ஆக ஆகிய ஆகும் ஆனால் இதன் இது இதை இந்த இருக்கும் இருந்து
இல்லை இவர் இவை உள்ள உள்ளது எங்கே எந்த என என்ன என்பது என்று எப்படி எப்போது எவ்வளவு ஏன் ஒரு ஓர் கொண்டு தன் தான்
நான் நாம் நீ நீங்கள் பற்றி பல போன்ற மட்டும் மற்றும் மீது முதல் மேலும் யார் வரை
""",
    "turkish": """
acaba ama ancak aslında az bana bazı belki ben beni benim beri bile bir biri birkaç biz bize bizi bizim bu buna
bunda bundan bunlar bunları bunların bunu bunun burada böyle da daha de defa değil diye dolayı en fakat gibi
göre hangi hangisi hem henüz hep hepsi her hiç hiçbir idi ile ise iyi için işte kadar karşı kaç kendi kendisi
kez ki kim kimi kimin mi mu mü mı nasıl ne neden nerede nereye niye niçin o olan olarak oldu olduğu olduğunu
olması olur ona ondan onlar onlara onları onların onu onun rağmen sanki sen seni senin siz sizi sizin sonra
tarafından tüm var ve veya ya yani yerine yine yok zaten çok çünkü öyle üzere şey şöyle
""",
    "yiddish": """
אַ אַז אַן אָבער אָדער אויב אויך אויס אויף און איז אים אין איר ביז ביסט בײַ דאָ דאָס דו די דעם דער האָבן האָט
וואָס וואו ווי וועט וועלן ווען ווער זאָל זי זיי זיך זענען זײַן מיט מיר נאָך נאָר ניט נישט עס ער פֿאַר פֿאַרוואָס
פֿון צו צי קיין קען
""",
}
"""Likewise, in version 3 of the rules."""
