"""Words for questions to a chat model: topics, tasks, and the forms of questions about them."""

from __future__ import annotations


def _split(text: str) -> list[str]:
    return [item.strip() for item in " ".join(text.split()).split("|")]


TOPICS = _split(  # of general questions
    """
the solar system | black holes | photosynthesis | the water cycle | volcanoes | earthquakes | climate change |
renewable energy | solar panels | wind power | nuclear energy | electric cars | batteries | the immune system |
vaccines | the human heart | sleep | dreams | memory | the brain | DNA | evolution | dinosaurs | whales | bees | ants
| dogs | cats | birds | sharks | octopuses | trees | rainforests | deserts | the ocean | coral reefs | mountains |
rivers | glaciers | the Moon | Mars | Jupiter | gravity | light | sound | magnetism | electricity | atoms | quantum
mechanics | relativity | thermodynamics | chemical reactions | acids and bases | the periodic table | water | oxygen |
carbon | gold | iron | plastics | recycling | pollution | the ozone layer | weather forecasts | hurricanes | tornadoes
| rainbows | the seasons | time zones | calendars | the Roman Empire | ancient Egypt | ancient Greece | the Middle
Ages | the Renaissance | the French Revolution | the American Civil War | World War I | World War II | the Cold War |
the Industrial Revolution | the space race | the Silk Road | the printing press | the Great Wall of China | the
pyramids | Shakespeare | Mozart | Leonardo da Vinci | Albert Einstein | Isaac Newton | Marie Curie | Charles Darwin |
Nikola Tesla | Ada Lovelace | Alan Turing | Gandhi | Nelson Mandela | Martin Luther King Jr. | democracy | elections |
the United Nations | the European Union | inflation | interest rates | supply and demand | taxes | the stock market |
budgeting | saving money | investing | insurance | loans | mortgages | starting a business | marketing |
advertising | branding | customer service | project management | time management | leadership | teamwork | negotiation
| public speaking | job interviews | writing a resume | remote work | work-life balance | stress | anxiety |
meditation | yoga | running | swimming | cycling | weight lifting | football | basketball | tennis | chess | board
games | video games | movies | photography | painting | drawing | sculpture | architecture | poetry | novels | short
stories | science fiction | fantasy books | detective stories | journalism | blogging | podcasts | social media |
online privacy | passwords | computer viruses | encryption | the internet | Wi-Fi | email | smartphones | computers |
operating systems | Linux | databases | SQL | spreadsheets | cloud computing | artificial intelligence | machine
learning | neural networks | robots | self-driving cars | drones | 3D printing | virtual reality | blockchain |
programming | Python | JavaScript | C++ | Java | Rust | HTML | CSS | algorithms | data structures | recursion |
sorting | binary search | hash tables | linked lists | graphs | version control | Git | testing software | debugging |
web servers | APIs | open source software | cooking | baking bread | pasta | pizza | soup | salads | sushi | curry |
chocolate | coffee | tea | wine | cheese | eggs | rice | vegetables | fruit | spices | healthy eating | vegetarian
food | breakfast | meal planning | camping | hiking | traveling by train | flying | packing a suitcase | Paris |
London | New York | Tokyo | Rome | Istanbul | Cairo | Sydney | Rio de Janeiro | India | China | Japan | Brazil |
Canada | Germany | France | Italy | Spain | Mexico | Kenya | languages | learning English | learning Spanish | grammar
| vocabulary | reading | studying for exams | taking notes | homework | universities | teaching | kindergarten |
parenting | babies | teenagers | friendship | marriage | weddings | birthdays | holidays | gifts | gardening | growing
tomatoes | houseplants | lawn care | cleaning the house | laundry | home repairs | painting a room | furniture |
moving to a new city | buying a car | bicycles | public transport | airplanes | ships | trains | bridges | skyscrapers
| music | the piano | the guitar | singing | dancing | jazz | opera | rock music | theater | museums | philosophy |
ethics | happiness | love | courage | honesty | religion | Buddhism | psychology | habits | motivation | goals |
creativity | critical thinking | logic | mathematics | fractions | percentages | algebra | geometry | calculus |
probability | statistics | prime numbers | pi | the Pythagorean theorem | kindness | old age | doctors | hospitals |
first aid | headaches | the common cold | allergies | vitamins | exercise | back pain | teeth | eyesight | skin care
"""
)
TOPIC_QUESTIONS = _split(  # {other}: a second topic
    """
Explain {topic} in simple words. | What is the history of {topic}? | What are the most important facts about {topic}?
| Write a short poem about {topic}. | Write a short story about {topic}. | Give me five tips about {topic}. | What
should a beginner know about {topic}? | List the advantages and disadvantages of {topic}. | Why is {topic} important?
| How does {topic} affect our daily life? | Write a paragraph about {topic}. | What are common misconceptions about
{topic}? | Explain {topic} to a ten-year-old. | Write an outline for an essay about {topic}. | Write a blog post about
{topic}. | Tell me a joke about {topic}. | What are three interesting questions about {topic}? | How can I learn more
about {topic}? | Write an introduction for a talk about {topic}. | Describe {topic} in one sentence. | Write a
dialogue between two friends about {topic}. | Compare {topic} and {other}. | What is the difference between {topic}
and {other}? | Is there a connection between {topic} and {other}? | Write a tweet about {topic}. | Write an email to a
friend about {topic}. | What would the world be like without {topic}? | Create a quiz with three questions about
{topic}. | What is your opinion about {topic}? | How has {topic} changed over the last hundred years? | Make a list of
ten words related to {topic}. | Can you recommend a good way to start with {topic}? | What are the biggest challenges
with {topic}? | Write a haiku about {topic}. | Imagine you are an expert on {topic}. What would you tell a student? |
Write a product description related to {topic}. | Plan a one-hour lesson about {topic}. | What do people get wrong
about {topic}? | Write the opening line of a novel about {topic}. | Give arguments for and against {topic}. | Write a
short speech about {topic} for a school event. | What are some famous examples of {topic}? | Act as a teacher and
explain {topic}. | Write a Python dictionary with facts about {topic}. | Make a table about {topic}. | Define {topic}.
| Who invented or discovered {topic}? | How do I explain {topic} to my grandmother? | Write step-by-step instructions
related to {topic}. | Give a short summary of {topic}.
"""
)
HOW_TO = _split(  # completes "How do I ...?"
    """
learn to play the piano | improve my writing | sleep better | lose weight | make friends in a new city | ask for a
raise | deal with a difficult coworker | stop procrastinating | read more books | remember names | prepare for an exam
| cook rice | boil an egg | make pancakes | bake a chocolate cake | make coffee | remove a stain from a shirt | fix a
flat tire | plant a tree | train a puppy | take care of a cat | clean a laptop screen | speed up my computer | back up
my files | create a strong password | install Python | write a for loop in Python | read a file in Python | sort a
list of dictionaries in Python | reverse a string in C | connect to a database in Java | center a div in CSS | make a
website | write a good commit message | undo a commit in Git | learn programming | find a job | write a cover letter |
give a presentation | speak with confidence | save money every month | choose a university | start a podcast | take
better photos | draw a face | write a song | tell a good story | plan a birthday party | pack for a long trip | stay
healthy in winter | build a habit | meditate | run a marathon | learn a language fast | negotiate a price | organize
my desk | calm down before an interview | say no politely | handle criticism | write a business plan | reduce waste at
home | save electricity | grow herbs indoors | make a budget | teach a child to read | help a friend who is sad | be
more creative
"""
)
CODE_TASKS = _split(  # completes "Write a function that ..."
    """
computes the factorial of a number | checks whether a string is a palindrome | counts the vowels in a string | finds
the largest number in a list | removes duplicates from a list | merges two sorted lists | computes the n-th Fibonacci
number | checks whether a number is prime | finds all prime numbers up to n | reverses the words of a sentence |
counts how often each word occurs in a text | sorts a list with bubble sort | sorts a list with quicksort | sorts a
list with merge sort | implements binary search | implements a stack | implements a queue with two stacks | implements
a linked list | implements a binary search tree | traverses a tree in level order | finds the shortest path in a graph
| detects a cycle in a linked list | solves the tower of Hanoi | computes the greatest common divisor | converts a
decimal number to binary | converts Celsius to Fahrenheit | checks whether two strings are anagrams | finds the
longest common prefix of strings | finds the second largest element | rotates a list by k positions | flattens a
nested list | transposes a matrix | multiplies two matrices | generates all permutations of a string | finds pairs
with a given sum | validates an email address with a regular expression | parses a CSV file | reads a JSON file and
prints a value | downloads a web page | counts lines in a file | renames all files in a folder | logs the run time of
a function with a decorator | caches results with a dictionary | generates a random password | simulates rolling two
coins | plays rock, paper, scissors | implements a simple calculator | prints a multiplication table | prints a
triangle of stars | computes the mean and median of a list | finds the missing number in a list | checks balanced
parentheses | evaluates a postfix expression | compresses a string with run-length encoding | encrypts text with a
Caesar cipher | computes the edit distance of two strings | finds the maximum subarray sum | solves the knapsack
problem | counts set bits of an integer | checks whether a year is a leap year | computes the days between two dates |
groups words by their first letter | inverts a dictionary | merges two dictionaries | splits a list into chunks |
implements a timer class | defines a bank account class | defines a class for a rectangle | implements the singleton
pattern | sends an HTTP request | starts a simple web server | trains a linear regression | plots a sine wave |
computes a moving average | draws samples without replacement | finds the most frequent element | removes all
punctuation from a string | capitalizes each word | checks whether a list is sorted | computes the power of a number
without using ** | sums the digits of a number | finds common elements of two lists | zips two lists into a dictionary
| swaps two variables | generates the Pascal triangle | counts down from ten | checks a Sudoku board | finds the
median of two sorted lists | implements a trie | implements an LRU cache | implements depth-first search
"""
)
RECIPIENTS = _split(  # of messages
    """
my boss | a customer | my landlord | a professor | a friend | a colleague | a recruiter | my team | a hotel | my
neighbor | the bank | a supplier | a teacher
"""
)
MESSAGES = _split(  # completes "Write an email to my boss ..."
    """
asking for a day off | apologizing for a late reply | inviting them to a meeting | saying thank you | asking about the
price | announcing a new product | complaining about noise | cancelling an appointment | asking for feedback on a
report | asking for a recommendation letter | declining an offer | reporting a bug | asking for a refund | confirming
a reservation | proposing a project | explaining a delay | congratulating them on a promotion | introducing myself |
asking for help with a computer | announcing that I will leave the company
"""
)
ROLES = _split(  # for role play
    """
a pirate | a doctor | a travel guide | a history teacher | a chef | a fitness coach | a poet | a lawyer | a software
engineer | a detective | a robot from the future | a king | a news reporter | a scientist | a grandmother
"""
)
SMALL_TALK = _split(  # whole questions
    """
Hello! | Hi, who are you? | What can you do? | Good morning! | How are you today? | Thank you! | What is your name? |
Who made you? | Tell me something interesting. | I am bored. | Tell me a joke. | Can you help me? | Are you a human? |
What is the meaning of life? | Sing me a song. | What time is it? | I feel sad today. | Tell me a fun fact. |
Recommend a book. | Recommend a movie. | Say hello in five languages. | Bye! | What should I eat tonight? | Write
something. | Teach me something new.
"""
)
FOLLOW_UPS = _split(  # second turns
    """
Make it shorter. | Give me an example. | Explain that in simpler words. | Why? | Can you make a list of the main points?
| Write that as JSON. | Write that as a table. | What are the disadvantages? | Is that always true? | Tell me more. |
Rewrite your answer in a more formal tone. | Turn it into an email. | What should I do first? | Can you check your answer
for mistakes? | Summarize your answer in one sentence. | Give me three more. | Please add comments. | Now write it in
another way. | Write a test for it. | How does the second part work? | Thanks! What else should I know?
"""
)
LANGUAGES = ["Python"] * 5 + ["JavaScript", "C", "C++", "Java", "Rust", "Go", "Bash", "TypeScript"]
NAMES = [
    "Anna",
    "Ben",
    "Carla",
    "David",
    "Emma",
    "Farid",
    "Grace",
    "Hugo",
    "Ivy",
    "Jamal",
    "Kate",
    "Leo",
    "Maria",
    "Noah",
    "Olga",
    "Peter",
    "Rosa",
    "Sam",
    "Tina",
    "Victor",
]
THINGS = [
    "apples",
    "books",
    "pencils",
    "cookies",
    "marbles",
    "stickers",
    "eggs",
    "oranges",
    "coins",
    "flowers",
    "stamps",
    "papers",
    "balloons",
    "bottles",
]
