// Of the program that is there for the headers that it makes ready for others.
int main() {}
